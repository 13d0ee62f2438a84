#include "orrery/base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "orrery/base/mapped_file.h"

namespace orrery {
namespace {

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/orrery-file-test-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  std::size_t Entries() const {
    const std::filesystem::directory_iterator begin(folder_);
    return static_cast<std::size_t>(std::distance(begin, std::filesystem::directory_iterator()));
  }

  std::string folder_;
};

TEST_F(FileTest, RoundTrip) {
  const std::string big(1 << 20, 'x');
  ASSERT_TRUE(WriteFile(Path("a"), big).ok());
  EXPECT_EQ(*ReadFile(Path("a"), 2 << 20), big);
  EXPECT_EQ(Entries(), 1u);
}

TEST_F(FileTest, OldFileStaysUntilCommit) {
  ASSERT_TRUE(WriteFile(Path("a"), "old").ok());
  {
    Result<FileWriter> writer = FileWriter::Create(Path("a"));
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->Write("new").ok());
    EXPECT_EQ(*ReadFile(Path("a"), 100), "old");
  }
  EXPECT_EQ(*ReadFile(Path("a"), 100), "old");
  EXPECT_EQ(Entries(), 1u);  // the temporary file is gone
}

TEST_F(FileTest, KeepsModeAndLinks) {
  ASSERT_TRUE(WriteFile(Path("real"), "old").ok());
  ASSERT_EQ(chmod(Path("real").c_str(), 0640), 0);
  ASSERT_EQ(symlink("real", Path("link").c_str()), 0);
  ASSERT_TRUE(WriteFile(Path("link"), "new").ok());
  EXPECT_EQ(*ReadFile(Path("real"), 100), "new");
  struct stat info {};
  ASSERT_EQ(stat(Path("real").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0640u);
  EXPECT_TRUE(std::filesystem::is_symlink(Path("link")));
}

TEST_F(FileTest, DevicesAreNotReplaced) {
  ASSERT_TRUE(WriteFile("/dev/null", "anything").ok());
  struct stat info {};
  ASSERT_EQ(stat("/dev/null", &info), 0);
  EXPECT_TRUE(S_ISCHR(info.st_mode));
}

TEST_F(FileTest, DiskFullIsAFault) {
  const Status status = WriteFile("/dev/full", "anything");
  EXPECT_EQ(status.code(), Code::kResource);
  EXPECT_EQ(status.message(), "cannot write '/dev/full': No space left on device");
}

// A killed writer's unfinished file goes with the next write of that file; a living one's, another
// file's and a user's own stay.
TEST_F(FileTest, UnfinishedFilesOfTheDeadAreRemoved) {
  const pid_t child = fork();
  if (child == 0) {
    Result<FileWriter> writer = FileWriter::Create(Path("a"));
    _exit(writer.ok() && writer->Write("half").ok() ? 0 : 1);  // no destructor runs
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  const std::string dead = Path("a.tmp-") + std::to_string(child);
  const std::string living = Path("a.tmp-") + std::to_string(getppid());
  ASSERT_TRUE(std::filesystem::exists(dead));
  for (const std::string& other : {living, Path("a.tmp-1x"), Path("b.tmp-999999999")}) {
    ASSERT_TRUE(WriteFile(other, "").ok());
  }
  ASSERT_TRUE(WriteFile(Path("a"), "whole").ok());
  EXPECT_FALSE(std::filesystem::exists(dead));
  EXPECT_TRUE(std::filesystem::exists(living));
  EXPECT_TRUE(std::filesystem::exists(Path("a.tmp-1x")));
  EXPECT_TRUE(std::filesystem::exists(Path("b.tmp-999999999")));
  EXPECT_EQ(*ReadFile(Path("a"), 100), "whole");
}

// Neither a pipe without a writer nor one whose writer says nothing, nor one without a reader, is
// waited for without end; what comes late is read.
TEST_F(FileTest, SilentPipesAreRefused) {
  ASSERT_EQ(setenv("ORRERY_PIPE_SECONDS", "1", 1), 0);
  const std::string pipe = Path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const Result<std::string> nobody = ReadFile(pipe, 100);
  ASSERT_FALSE(nobody.ok());
  EXPECT_EQ(nobody.status().message(),
            "'" + pipe +
                "' is a pipe that has said nothing for 1 s; ORRERY_PIPE_SECONDS=0 waits "
                "for ever");
  const Status unread = WriteFile(pipe, "x");
  EXPECT_NE(unread.message().find("is a pipe that nobody has read for 1 s"), std::string::npos);
  const auto writes = [&](const char* text, int seconds) {
    const pid_t child = fork();
    if (child != 0) return child;
    const int end = open(pipe.c_str(), O_WRONLY);
    usleep(300'000);
    const bool written = write(end, text, std::strlen(text)) >= 0;
    sleep(static_cast<unsigned>(seconds));
    _exit(written ? 0 : 1);
  };
  const pid_t late = writes("late", 0);
  EXPECT_EQ(*ReadFile(pipe, 100), "late");
  waitpid(late, nullptr, 0);
  const pid_t silent = writes("half", 2);
  EXPECT_FALSE(ReadFile(pipe, 100).ok());
  waitpid(silent, nullptr, 0);
  setenv("ORRERY_PIPE_SECONDS", "soon", 1);
  const std::string wrong = "ORRERY_PIPE_SECONDS: 'soon' is no whole number from 0 to 1000000";
  EXPECT_EQ(WriteFile(pipe, "x").message(), wrong);
  EXPECT_TRUE(WriteFile("/dev/null", "x").ok());  // no pipe
  unsetenv("ORRERY_PIPE_SECONDS");
}

TEST_F(FileTest, NamesFileAndRemedy) {
  EXPECT_EQ(ReadFile(Path("none"), 10).status().message(),
            "cannot read '" + Path("none") + "': No such file or directory; check the path");
  EXPECT_EQ(ReadFile(folder_, 10).status().code(), Code::kInvalidInput);
  EXPECT_EQ(WriteFile(folder_, "").code(), Code::kInvalidInput);
  EXPECT_EQ(WriteFile(Path("no/such/folder"), "").message(),
            "cannot write '" + Path("no/such/folder") +
                "': its folder does not exist; make it: mkdir -p " + Path("no/such"));
  ASSERT_TRUE(WriteFile(Path("a"), "0123456789").ok());
  EXPECT_EQ(ReadFile(Path("a"), 9).status().message(),
            "'" + Path("a") + "' is larger than 9 B, the limit for this kind of file");
}

// A job in the root folder looked for its files in the current one.
TEST(FolderOf, IsEmptyOnlyWhereThePathNamesNone) {
  EXPECT_EQ(FolderOf("a.yaml"), "");
  EXPECT_EQ(FolderOf("jobs/a.yaml"), "jobs");
  EXPECT_EQ(FolderOf("/a.yaml"), "/");
}

// Opening a pipe waited for a writer that never came.
TEST_F(FileTest, MapsRegularFilesOnly) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::Open(Path("pipe")).status().message(),
            "cannot map '" + Path("pipe") + "': Invalid argument; name a readable file");
  EXPECT_EQ(MappedFile::Open(folder_).status().code(), Code::kInvalidInput);
  ASSERT_TRUE(WriteFile(Path("a"), "bytes").ok());
  EXPECT_EQ(MappedFile::Open(Path("a"))->bytes(), "bytes");
}

}  // namespace
}  // namespace orrery
