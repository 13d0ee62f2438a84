// JSON through nlohmann's event interface, which knows no places: an input iterator that counts
// lines supplies them. A value's line is exact; its column is not known.
#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "orrery/base/text.h"
#include "orrery/formats/tree_builder.h"

namespace orrery::formats {
namespace {

// Where the parser reads. It may have read one character beyond a number.
struct Cursor {
  std::int32_t line = 1;
  std::int32_t line_before = 1;  // before the last character
};

class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, Cursor* cursor) : at_(at), cursor_(cursor) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    cursor_->line_before = cursor_->line;
    if (*at_ == '\n') ++cursor_->line;
    ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator old = *this;
    ++*this;
    return old;
  }
  friend bool operator==(const CountingIterator& a, const CountingIterator& b) {
    return a.at_ == b.at_;
  }
  friend bool operator!=(const CountingIterator& a, const CountingIterator& b) { return !(a == b); }

 private:
  const char* at_;
  Cursor* cursor_;
};

class JsonHandler {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  JsonHandler(const Limits& limits, const Cursor* cursor) : builder_(limits), cursor_(cursor) {}

  bool null() { return Check(builder_.Null(cursor_->line_before, 0)); }
  bool boolean(bool value) { return Add(value ? "true" : "false", false); }
  bool number_integer(number_integer_t value) { return Add(std::to_string(value), false); }
  bool number_unsigned(number_unsigned_t value) { return Add(std::to_string(value), false); }
  bool number_float(number_float_t, const string_t& text) { return Add(text, false); }
  bool string(string_t& value) { return Add(value, true); }
  bool binary(binary_t&) { return false; }
  bool start_object(std::size_t) { return Check(builder_.Open(Node::Kind::kMap, Now(), 0)); }
  bool key(string_t& value) { return Check(builder_.Key(value, cursor_->line_before, 0)); }
  bool end_object() {
    builder_.Close();
    return true;
  }
  bool start_array(std::size_t) { return Check(builder_.Open(Node::Kind::kList, Now(), 0)); }
  bool end_array() {
    builder_.Close();
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& e) {
    position_ = position;
    out_of_range_ = e.id >= 400;
    return false;
  }

  Node TakeRoot() { return builder_.TakeRoot(); }
  const Status& status() const { return status_; }
  std::int32_t line() const { return line_; }
  std::size_t position() const { return position_; }
  bool out_of_range() const { return out_of_range_; }

 private:
  std::int32_t Now() const { return cursor_->line; }
  bool Add(std::string_view text, bool quoted) {
    return Check(builder_.Scalar(text, quoted, cursor_->line_before, 0));
  }
  bool Check(Status status) {
    if (status.ok()) return true;
    status_ = std::move(status);
    line_ = cursor_->line_before;
    return false;
  }

  TreeBuilder builder_;
  const Cursor* cursor_;
  Status status_;
  std::int32_t line_ = 0;
  std::size_t position_ = 0;
  bool out_of_range_ = false;
};

}  // namespace

Result<Document> ParseJson(std::string_view text, const std::string& name, const Limits& limits) {
  ORRERY_RETURN_IF_ERROR(CheckText(text, name, limits));
  Document document;
  document.sources.push_back(name);
  Cursor cursor;
  JsonHandler handler(limits, &cursor);
  const bool done =
      nlohmann::json::sax_parse(CountingIterator(text.data(), &cursor),
                                CountingIterator(text.data() + text.size(), &cursor), &handler);
  if (done) {
    document.root = handler.TakeRoot();
    return document;
  }
  if (!handler.status().ok()) {
    return InvalidInput("{}:{}: {}", Printable(name, 400), handler.line(),
                        handler.status().message());
  }
  if (handler.position() > text.size()) {
    return InvalidInput("{}: the JSON ends in the middle; the file is cut short",
                        Printable(name, 400));
  }
  const TextPlace place = PlaceOf(text, handler.position() == 0 ? 0 : handler.position() - 1);
  return InvalidInput("{}:{}:{}: {}", Printable(name, 400), place.line, place.column,
                      handler.out_of_range() ? "the number is out of range" : "this is not JSON");
}

}  // namespace orrery::formats
