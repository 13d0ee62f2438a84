#include "orrery/base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "orrery/base/text.h"

namespace orrery {
namespace {

constexpr std::size_t kBuffer = 1 << 18;
constexpr std::int64_t kMostOfAStream = std::int64_t{256} << 20;  // pipes and devices

std::string Shown(const std::string& path) { return fmt::format("'{}'", Printable(path, 400)); }

// What the user can do about it; empty when it is the machine's fault.
std::string_view Remedy(int error) {
  switch (error) {
    case ENOENT:
      return "check the path";
    case ENOTDIR:
      return "a part of the path is a file, not a folder";
    case EACCES:
    case EPERM:
      return "check its permissions or choose another path";
    case ENAMETOOLONG:
      return "the name is too long; choose a shorter one";
    case ELOOP:
      return "its symbolic links lead in a circle";
    case EINVAL:
    case ENXIO:
      return "it is no file that can be opened";
    default:
      return {};
  }
}

// As a system call takes it.
std::string Folder(const std::string& path) {
  std::string folder = FolderOf(path);
  return folder.empty() ? "." : folder;
}

Status Failure(std::string_view verb, const std::string& path, int error) {
  if (path == "-" && error == ENOENT) {
    return InvalidInput("cannot {} '-': there is no file of that name; stdin is /dev/stdin", verb);
  }
  if (error == EROFS) {  // no mistake in the path: the machine does not take the file
    return ResourceError("cannot {} {}: the file system is read-only; choose another path", verb,
                         Shown(path));
  }
  if (error == EISDIR) return InvalidInput("cannot {} {}: a folder, not a file", verb, Shown(path));
  if (error == ENOENT && verb == "write") {
    const std::string folder = Folder(path);
    return InvalidInput("cannot write {}: its folder does not exist; make it: mkdir -p {}",
                        Shown(path), Printable(folder, 400));
  }
  const std::string_view remedy = Remedy(error);
  if (remedy.empty()) return ResourceError("cannot {} {}: {}", verb, Shown(path), strerror(error));
  return InvalidInput("cannot {} {}: {}; {}", verb, Shown(path), strerror(error), remedy);
}

// A disk that fails under a file already open is never the user's mistake.
Status Fault(std::string_view verb, const std::string& path, int error) {
  return ResourceError("cannot {} {}: {}", verb, Shown(path), strerror(error));
}

// How long a pipe may be silent: a program that never writes to it must not hold this one for ever.
// 0: as long as it likes.
constexpr char kPipeVariable[] = "ORRERY_PIPE_SECONDS";
Result<int> PipeSeconds() {
  constexpr int kFallback = 300, kMost = 1'000'000;
  const char* const text =
      std::getenv(kPipeVariable);  // NOLINT(concurrency-mt-unsafe): set by none
  if (text == nullptr) return kFallback;
  int seconds = 0;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), seconds);
  const bool valid = error == std::errc() && *end == '\0' && seconds >= 0 && seconds <= kMost;
  if (valid) return seconds;
  return InvalidInput("{}: '{}' is no whole number from 0 to {}", kPipeVariable,
                      Printable(text, 40), kMost);
}

Status Silent(std::string_view what, int seconds, const std::string& path) {
  return InvalidInput("{} {} for {} s; {}=0 waits for ever", Shown(path), what, seconds,
                      kPipeVariable);
}

// Undoes O_NONBLOCK, with which a pipe opens without its other end.
void Block(int descriptor) { fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) & ~O_NONBLOCK); }

// Waits until a pipe has something to read or has ended.
Status AwaitPipe(int descriptor, const std::string& path) {
  using Clock = std::chrono::steady_clock;
  ORRERY_ASSIGN_OR_RETURN(const int seconds, PipeSeconds());
  if (seconds == 0) return {};
  const auto end = Clock::now() + std::chrono::seconds(seconds);
  pollfd one{descriptor, POLLIN, 0};
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) return Silent("is a pipe that has said nothing", seconds, path);
    const int ready = poll(&one, 1, static_cast<int>(left));
    if (ready > 0 || (ready < 0 && errno != EINTR)) return {};  // read() says what is wrong
  }
}

Status AwaitOrClose(int descriptor, const std::string& path) {
  Status status = AwaitPipe(descriptor, path);
  if (!status.ok()) close(descriptor);
  return status;
}

// Opens what exists for writing; a pipe waits for its reader.
Result<int> OpenDirectly(const std::string& path) {
  using Clock = std::chrono::steady_clock;
  struct stat info {};
  int seconds = 0;
  if (stat(path.c_str(), &info) == 0 && S_ISFIFO(info.st_mode)) {
    ORRERY_ASSIGN_OR_RETURN(seconds, PipeSeconds());
  }
  const bool pipe = seconds > 0;
  const auto end = Clock::now() + std::chrono::seconds(seconds);
  while (true) {
    const int descriptor = open(path.c_str(), O_WRONLY | O_CLOEXEC | (pipe ? O_NONBLOCK : 0));
    if (descriptor >= 0) {
      if (pipe) Block(descriptor);
      return descriptor;
    }
    if (errno == EINTR) continue;
    if (!pipe || errno != ENXIO) return Failure("write", path, errno);
    if (Clock::now() >= end) return Silent("is a pipe that nobody has read", seconds, path);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// Where a symbolic link finally leads, so that the link survives the rename.
std::string Resolve(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0 || !S_ISLNK(info.st_mode)) return path;
  char resolved[PATH_MAX];
  return realpath(path.c_str(), resolved) != nullptr ? std::string(resolved) : path;
}

// Whether the writer of a temporary file has died: it holds a lock while it lives, on whatever
// machine. A process of its number here may be about to take it.
bool IsOrphan(const std::string& temporary, pid_t writer) {
  if (kill(writer, 0) == 0 || errno != ESRCH) return false;
  const int descriptor = open(temporary.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor < 0) return false;
  const bool free = flock(descriptor, LOCK_EX | LOCK_NB) == 0;
  close(descriptor);
  return free;
}

// Unfinished contents of `target` that killed processes left beside it.
void RemoveOrphans(const std::string& target) {
  const std::string folder = Folder(target);
  const std::size_t slash = target.rfind('/');
  const std::string begin =
      (slash == std::string::npos ? target : target.substr(slash + 1)) + ".tmp-";
  DIR* const listing = opendir(folder.c_str());
  if (listing == nullptr) return;
  std::vector<std::string> orphans;
  while (const dirent* entry = readdir(listing)) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with(begin)) continue;
    const std::string_view digits = name.substr(begin.size());
    pid_t writer = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), writer);
    if (error != std::errc() || end != digits.data() + digits.size() || writer <= 0) continue;
    std::string path = folder + "/" + std::string(name);
    if (IsOrphan(path, writer)) orphans.push_back(std::move(path));
  }
  closedir(listing);
  for (const std::string& orphan : orphans) unlink(orphan.c_str());
}

}  // namespace

std::string FolderOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {};
  return slash == 0 ? "/" : path.substr(0, slash);
}

Result<std::string> ReadFile(const std::string& path, std::int64_t limit_bytes) {
  if (path.find('\0') != std::string::npos) return Failure("read", path, EINVAL);
  // A pipe is opened without waiting for who writes to it.
  struct stat info {};
  const bool pipe = stat(path.c_str(), &info) == 0 && S_ISFIFO(info.st_mode);
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | (pipe ? O_NONBLOCK : 0));
  if (descriptor < 0) return Failure("read", path, errno);
  const bool known = fstat(descriptor, &info) == 0;
  if (known && S_ISDIR(info.st_mode)) {
    close(descriptor);
    return Failure("read", path, EISDIR);
  }
  // A file says how large it is before anything of it is read; /dev/zero and pipes never end.
  const bool file = known && S_ISREG(info.st_mode);
  if (!file) limit_bytes = std::min(limit_bytes, kMostOfAStream);
  const auto too_large = [&] {
    close(descriptor);
    if (!file && limit_bytes == kMostOfAStream) {
      return InvalidInput(
          "{} gives more than {}, the limit for what is no regular file; write it to one",
          Shown(path), HumanBytes(limit_bytes));
    }
    return InvalidInput("{} is larger than {}, the limit for this kind of file", Shown(path),
                        HumanBytes(limit_bytes));
  };
  if (file && info.st_size > limit_bytes) return too_large();
  std::string contents;
  if (file) contents.reserve(static_cast<std::size_t>(info.st_size));
  if (pipe) Block(descriptor);
  char block[1 << 16];
  while (true) {
    if (pipe) ORRERY_RETURN_IF_ERROR(AwaitOrClose(descriptor, path));
    const ssize_t got = read(descriptor, block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int error = errno;
      close(descriptor);
      return Fault("read", path, error);
    }
    if (got == 0) break;
    if (static_cast<std::int64_t>(contents.size()) + got > limit_bytes) return too_large();
    contents.append(block, static_cast<std::size_t>(got));
  }
  close(descriptor);
  return contents;
}

std::string TemporaryName(const std::string& path) {
  return Resolve(path) + ".tmp-" + std::to_string(getpid());
}

FileWriter::FileWriter(std::string path, std::string temporary, int descriptor)
    : path_(std::move(path)), temporary_(std::move(temporary)), descriptor_(descriptor) {}

FileWriter::FileWriter(FileWriter&& other) noexcept { *this = std::move(other); }

FileWriter& FileWriter::operator=(FileWriter&& other) noexcept {
  if (this == &other) return *this;
  Drop();
  path_ = std::move(other.path_);
  temporary_ = std::exchange(other.temporary_, {});
  descriptor_ = std::exchange(other.descriptor_, -1);
  buffer_ = std::move(other.buffer_);
  written_ = other.written_;
  return *this;
}

FileWriter::~FileWriter() { Drop(); }

void FileWriter::Drop() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  descriptor_ = -1;
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

Result<FileWriter> FileWriter::Create(const std::string& path) {
  if (path.empty() || path.find('\0') != std::string::npos) return Failure("write", path, EINVAL);
  const std::string target = Resolve(path);
  struct stat info {};
  const bool exists = stat(target.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) return Failure("write", path, EISDIR);
  if (exists && !S_ISREG(info.st_mode)) {
    ORRERY_ASSIGN_OR_RETURN(const int descriptor, OpenDirectly(target));
    return FileWriter(target, "", descriptor);
  }
  // The rename would replace a file that may not be written: ask first.
  if (exists && access(target.c_str(), W_OK) != 0) return Failure("write", path, errno);
  // Before the file is there: whatever fails from then on, memory too, takes it away again.
  FileWriter writer(target, TemporaryName(target), -1);
  const char* const temporary = writer.temporary_.c_str();
  unlink(temporary);  // of a killed process that had our number
  RemoveOrphans(target);
  writer.descriptor_ = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (writer.descriptor_ < 0) return Failure("write", path, errno);
  flock(writer.descriptor_, LOCK_EX | LOCK_NB);  // says that its writer lives (RemoveOrphans)
  if (exists && fchmod(writer.descriptor_, info.st_mode & 07777) != 0 && errno != EPERM) {
    return Fault("write", path, errno);
  }
  return writer;
}

Status FileWriter::Write(std::string_view bytes) {
  ORRERY_CHECK(descriptor_ >= 0, "a committed file takes no more bytes");
  buffer_.append(bytes);
  written_ += static_cast<std::int64_t>(bytes.size());
  return buffer_.size() >= kBuffer ? Flush() : Status();
}

Status FileWriter::Flush() {
  std::string_view left = buffer_;
  while (!left.empty()) {
    const ssize_t put = write(descriptor_, left.data(), left.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return Fault("write", path_, errno);
    left.remove_prefix(static_cast<std::size_t>(put));
  }
  buffer_.clear();
  return {};
}

Status FileWriter::Commit() {
  ORRERY_RETURN_IF_ERROR(Flush());
  if (temporary_.empty()) {
    const int descriptor = std::exchange(descriptor_, -1);
    return close(descriptor) == 0 ? Status() : Fault("write", path_, errno);
  }
  while (fsync(descriptor_) != 0) {
    if (errno != EINTR) return Fault("flush", path_, errno);
  }
  // From here on Drop must not remove what the rename has put in place.
  const int descriptor = std::exchange(descriptor_, -1);
  int error = close(descriptor) == 0 ? 0 : errno;
  if (error == 0 && rename(temporary_.c_str(), path_.c_str()) != 0) error = errno;
  if (error != 0) {
    unlink(temporary_.c_str());
    return Fault("write", path_, error);
  }
  const int folder = open(Folder(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    const int failed = fsync(folder) != 0 && errno != EINVAL && errno != EINTR ? errno : 0;
    close(folder);
    if (failed != 0) return Fault("flush the folder of", path_, failed);
  }
  return {};
}

Status WriteFile(const std::string& path, std::string_view contents) {
  ORRERY_ASSIGN_OR_RETURN(FileWriter writer, FileWriter::Create(path));
  ORRERY_RETURN_IF_ERROR(writer.Write(contents));
  return writer.Commit();
}

}  // namespace orrery
