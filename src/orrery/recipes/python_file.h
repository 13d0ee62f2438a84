// A configuration written in Python, read without running it: what its assignments and functions
// say as literals, lists, dictionaries, calls by name, arithmetic on numbers and on names that were
// set before. Conditions, loops and imports are passed over; what cannot be read is kUnknown, with
// its text. Bounded: bytes, values, depth.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"

namespace orrery::recipes {

struct PythonField;

struct PythonValue {
  enum class Kind : std::uint8_t { kUnknown, kNone, kBool, kNumber, kText, kList, kMap, kCall };
  Kind kind = Kind::kUnknown;
  std::string text;  // "True", "1e-4", what stands between quotes; of a call the callee's name
  std::int32_t line = 0;
  std::vector<PythonValue> items;   // of a list; a call's by position
  std::vector<PythonField> fields;  // of a dictionary; a call's by name

  bool unknown() const { return kind == Kind::kUnknown; }
  const PythonValue* Find(std::string_view key) const;  // a field; null: there is none
  // A field of fields: "training.seq_len".
  const PythonValue* At(std::string_view path) const;
};

struct PythonField {
  std::string key;
  PythonValue value;
};

// A field of fields as if the file had assigned it; a number, True, False, None or else a text.
void SetPython(std::string_view path, const std::string& text, std::int32_t line, PythonValue* to);

struct PythonFile {
  PythonValue values;                  // a map of what is assigned outside of functions
  std::vector<std::string> functions;  // that take no arguments and return something, in order
};
Result<PythonFile> ReadPython(std::string_view text, const std::string& name);
// What such a function returns, with those of the same file that it calls.
Result<PythonValue> CallPython(std::string_view text, const std::string& name,
                               const std::string& function);

}  // namespace orrery::recipes
