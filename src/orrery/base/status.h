// Status and Result: what a user can get wrong is a value that names file, field, value and remedy.
// The library never throws, prints or exits; apps map the code to the process's exit status.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "orrery/base/check.h"

namespace orrery {

enum class Code {
  kOk,
  kInvalidInput,  // exit 2: bad input or usage
  kInfeasible,    // exit 1: the job cannot run (out of device memory, deadlock)
  kResource,      // exit 3: host memory, disk, quota, or an internal error
  kInterrupted,   // exit 130
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same error with "where: " before it; an ok status stays ok.
  Status In(const std::string& where) && {
    if (!ok()) message_ = where + ": " + message_;
    return std::move(*this);
  }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

template <class... Args>
Status InvalidInput(fmt::format_string<Args...> format, Args&&... args) {
  return {Code::kInvalidInput, fmt::format(format, std::forward<Args>(args)...)};
}
template <class... Args>
Status Infeasible(fmt::format_string<Args...> format, Args&&... args) {
  return {Code::kInfeasible, fmt::format(format, std::forward<Args>(args)...)};
}
template <class... Args>
Status ResourceError(fmt::format_string<Args...> format, Args&&... args) {
  return {Code::kResource, fmt::format(format, std::forward<Args>(args)...)};
}

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT: a value is a result
  Result(Status status) : status_(std::move(status)) {  // NOLINT: an error is a result
    ORRERY_CHECK(!status_.ok(), "a Result without a value needs an error");
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  Status TakeStatus() && { return std::move(status_); }
  T& operator*() & {
    ORRERY_CHECK(ok(), "value of a failed Result");
    return *value_;
  }
  const T& operator*() const& {
    ORRERY_CHECK(ok(), "value of a failed Result");
    return *value_;
  }
  T&& operator*() && {
    ORRERY_CHECK(ok(), "value of a failed Result");
    return std::move(*value_);
  }
  T* operator->() { return &**this; }
  const T* operator->() const { return &**this; }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace orrery

#define ORRERY_RETURN_IF_ERROR(expression)                                      \
  do {                                                                          \
    if (::orrery::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)

#define ORRERY_CONCAT_INNER(a, b) a##b
#define ORRERY_CONCAT(a, b) ORRERY_CONCAT_INNER(a, b)
#define ORRERY_ASSIGN_OR_RETURN(declaration, expression) \
  ORRERY_ASSIGN_OR_RETURN_IMPL(ORRERY_CONCAT(result_, __LINE__), declaration, expression)
#define ORRERY_ASSIGN_OR_RETURN_IMPL(result, declaration, expression) \
  auto result = (expression);                                         \
  if (!result.ok()) return std::move(result).TakeStatus();            \
  declaration = *std::move(result)
