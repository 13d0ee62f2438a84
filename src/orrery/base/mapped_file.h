// A file's bytes in memory, read as they are touched; processes that map the same file share them.
// The file must not be cut while it is mapped: a touch behind its new end ends the process.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "orrery/base/status.h"

namespace orrery {

class MappedFile {
 public:
  // Regular files only; an empty one has no bytes.
  static Result<MappedFile> Open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  // Begin at a page; stay where they are when the object moves.
  std::string_view bytes() const { return {static_cast<const char*>(data_), size_}; }
  // What was touched leaves this process's memory; it is read again where it is touched again.
  void Forget() const;

 private:
  MappedFile(void* data, std::size_t size) : data_(data), size_(size) {}

  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace orrery
