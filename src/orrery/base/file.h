// Files in and out: whole reads under a byte budget; writes that leave the old or the new file
// whole.
//
// A write goes to a temporary file beside the target, is flushed to disk (fsync) and then renamed
// over the target; the directory is flushed too. A process killed at any moment leaves the old
// file, and at worst the temporary one, which the next writer of that target removes. A target that
// exists and is no regular file (/dev/null, a pipe) is written directly. Errors name the file: a
// path that the user can correct is kInvalidInput with a remedy; a fault of disk, quota or device
// is kResource.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "orrery/base/status.h"

namespace orrery {

// The whole file. One of more than `limit_bytes` is refused before it is read; a pipe or a device
// after that many bytes, or after 256 MiB. A pipe may be silent for ORRERY_PIPE_SECONDS (300 where
// the environment has none; 0: for ever).
Result<std::string> ReadFile(const std::string& path, std::int64_t limit_bytes);

// "jobs" of "jobs/a.yaml", "/" of "/a.yaml", to which names inside the file are relative; empty
// where the path names none.
std::string FolderOf(const std::string& path);

// Where this process keeps the unfinished content of `path`, whose symbolic links are followed.
std::string TemporaryName(const std::string& path);

class FileWriter {
 public:
  static Result<FileWriter> Create(const std::string& path);
  FileWriter(FileWriter&& other) noexcept;
  FileWriter& operator=(FileWriter&& other) noexcept;
  ~FileWriter();  // without Commit: removes the temporary file, the target stays as it was

  Status Write(std::string_view bytes);  // buffered
  Status Commit();                       // flush, fsync, rename; once, last
  std::int64_t written() const { return written_; }

 private:
  FileWriter(std::string path, std::string temporary, int descriptor);
  Status Flush();
  void Drop();

  std::string path_;
  std::string temporary_;  // empty: written directly
  int descriptor_ = -1;
  std::string buffer_;
  std::int64_t written_ = 0;
};

// Create, Write, Commit.
Status WriteFile(const std::string& path, std::string_view contents);

}  // namespace orrery
