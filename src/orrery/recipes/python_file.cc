#include "orrery/recipes/python_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "orrery/base/text.h"

namespace orrery::recipes {
namespace {

constexpr std::size_t kMostPythonBytes = 1 << 20;
constexpr int kMostPythonDepth = 48;
constexpr std::int64_t kMostPythonValues = 200'000;

using Kind = PythonValue::Kind;

bool IsPythonLetter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool IsPythonName(char c) {
  return IsPythonLetter(c) || std::isdigit(static_cast<unsigned char>(c)) != 0;
}

// A statement with the lines that its brackets go over joined.
struct PythonStatement {
  std::string text;
  std::int32_t line = 0;
  std::size_t indent = 0;
};

// Where a string that begins at `at` ends, three quotes or one.
std::size_t EndOfPythonString(std::string_view text, std::size_t at) {
  const char quote = text[at];
  const bool triple = text.substr(at).starts_with(std::string(3, quote));
  const std::string close(triple ? 3 : 1, quote);
  for (std::size_t i = at + close.size(); i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text.substr(i).starts_with(close)) {
      return i + close.size();
    } else if (!triple && text[i] == '\n') {
      return i;
    }
  }
  return text.size();
}

std::vector<PythonStatement> PythonStatements(std::string_view text) {
  std::vector<PythonStatement> all;
  PythonStatement now;
  std::int32_t line = 1;
  int open = 0;
  bool start = true;
  const auto close = [&] {
    if (now.text.find_first_not_of(" \t\r") != std::string::npos) all.push_back(now);
    now = {};
    start = true;
  };
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (start && (c == ' ' || c == '\t')) {
      ++now.indent;
      ++at;
      continue;
    }
    if (start) now.line = line;
    start = false;
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (c == '"' || c == '\'') {
      const std::size_t end = EndOfPythonString(text, at);
      line += static_cast<std::int32_t>(std::count(text.begin() + at, text.begin() + end, '\n'));
      now.text += text.substr(at, end - at);
      at = end;
    } else if (c == '\n' || c == '\r') {
      if (c == '\n') ++line;
      const bool continued = now.text.ends_with('\\');
      if (continued) now.text.back() = ' ';
      if (open > 0 || continued) {
        now.text += ' ';
      } else if (c == '\n') {
        close();
      }
      ++at;
    } else {
      if (c == '(' || c == '[' || c == '{') ++open;
      if (c == ')' || c == ']' || c == '}') open = std::max(0, open - 1);
      now.text += c;
      ++at;
    }
  }
  close();
  return all;
}

std::optional<double> NumberOf(const PythonValue& value) {
  if (value.kind != Kind::kNumber) return std::nullopt;
  double number = 0;
  const char* end = value.text.data() + value.text.size();
  const auto [at, error] = std::from_chars(value.text.data(), end, number);
  return error == std::errc() && at == end ? std::optional(number) : std::nullopt;
}

std::string TextOfNumber(double value) {
  if (std::abs(value) < 9e15 && value == std::floor(value)) {
    return std::to_string(static_cast<std::int64_t>(value));
  }
  return fmt::format("{}", value);
}

struct PythonScope {
  PythonValue* names = nullptr;        // a map
  const PythonValue* outer = nullptr;  // of the file; null: there is none
};

class PythonModule {
 public:
  PythonModule(std::string_view text, std::string name) : name_(std::move(name)) {
    for (PythonStatement& statement : PythonStatements(text)) {
      const std::string& head = statement.text;
      if (statement.indent > 0) {
        if (!now_.empty()) bodies_[now_].push_back(std::move(statement));
        continue;
      }
      now_.clear();
      if (head.starts_with("def ")) {
        const std::size_t open = head.find('(');
        const std::string function = head.substr(4, open - 4);
        const std::size_t end = open == std::string::npos ? open : head.find(')', open);
        const bool none =
            end != std::string::npos &&
            head.substr(open + 1, end - open - 1).find_first_not_of(" ,") == std::string::npos;
        if (none && bodies_.emplace(function, std::vector<PythonStatement>()).second) {
          order_.push_back(function);
          now_ = function;
        }
        // "def f(): return x" on one line
        const std::size_t colon = head.rfind("):");
        if (!now_.empty() && colon != std::string::npos && colon + 2 < head.size()) {
          bodies_[now_].push_back({head.substr(colon + 2), statement.line, 4});
        }
      } else if (!head.starts_with("class ")) {
        top_.push_back(std::move(statement));
      }
    }
  }

  Result<PythonValue> Values() {
    PythonValue values{.kind = Kind::kMap};
    ORRERY_RETURN_IF_ERROR(Run(top_, {.names = &values}, 0).status());
    return values;
  }

  std::vector<std::string> Functions() const {
    std::vector<std::string> functions;
    for (const std::string& function : order_) {
      const std::vector<PythonStatement>& body = bodies_.at(function);
      if (std::ranges::any_of(body, [](const PythonStatement& one) {
            return TrimmedView(one.text).starts_with("return ");
          })) {
        functions.push_back(function);
      }
    }
    return functions;
  }

  Result<PythonValue> Call(const std::string& function, int depth) {
    const auto body = bodies_.find(function);
    if (body == bodies_.end()) return InvalidInput("{}: no function '{}'", name_, function);
    ORRERY_ASSIGN_OR_RETURN(const PythonValue outer, OuterValues());
    PythonValue names{.kind = Kind::kMap};
    return Run(body->second, {.names = &names, .outer = &outer}, depth + 1);
  }
  bool Has(const std::string& function) const { return bodies_.contains(function); }

  Status Count(std::int32_t line) {
    if (++count_ <= kMostPythonValues) return {};
    return InvalidInput("{}:{}: more than {} values; this is no configuration", name_, line,
                        kMostPythonValues);
  }
  const std::string& name() const { return name_; }

 private:
  static std::string_view TrimmedView(std::string_view text) {
    const std::size_t from = std::min(text.find_first_not_of(" \t\r"), text.size());
    const std::size_t to = text.find_last_not_of(" \t\r");
    return to == std::string_view::npos ? "" : text.substr(from, to + 1 - from);
  }

  Result<PythonValue> OuterValues() {
    if (outer_) return *outer_;
    outer_.emplace();  // of functions that are called while it is made
    outer_->kind = Kind::kMap;
    ORRERY_ASSIGN_OR_RETURN(PythonValue values, Values());
    outer_ = std::move(values);
    return *outer_;
  }

  // PythonStatements of the shallowest indent; deeper ones hang on conditions and loops.
  Result<PythonValue> Run(const std::vector<PythonStatement>& body, const PythonScope& scope,
                          int depth);

  std::string name_, now_;
  std::vector<PythonStatement> top_;
  std::map<std::string, std::vector<PythonStatement>> bodies_;
  std::vector<std::string> order_;
  std::optional<PythonValue> outer_;
  std::int64_t count_ = 0;
};

class PythonExpression {
 public:
  PythonExpression(std::string_view text, std::int32_t line, const PythonScope& scope,
                   PythonModule* module, int depth)
      : text_(text), line_(line), scope_(scope), module_(module), depth_(depth) {}

  Result<PythonValue> Whole() {
    ORRERY_ASSIGN_OR_RETURN(PythonValue value, Sum());
    Blank();
    if (at_ >= text_.size()) return value;
    return Unknown();  // a condition, a comparison
  }

 private:
  PythonValue Unknown() const { return {.text = std::string(text_), .line = line_}; }
  PythonValue Make(Kind kind, std::string text) const {
    return {.kind = kind, .text = std::move(text), .line = line_};
  }
  void Blank() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool Takes(std::string_view what) {
    Blank();
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }

  Result<PythonValue> Sum() {
    ORRERY_RETURN_IF_ERROR(module_->Count(line_));
    if (depth_ > kMostPythonDepth) {
      return InvalidInput("{}:{}: more than {} levels of brackets and calls", module_->name(),
                          line_, kMostPythonDepth);
    }
    ORRERY_ASSIGN_OR_RETURN(PythonValue left, Product());
    for (Blank(); at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-'); Blank()) {
      const bool plus = text_[at_++] == '+';
      ORRERY_ASSIGN_OR_RETURN(const PythonValue right, Product());
      if (plus && left.kind == Kind::kList && right.kind == Kind::kList) {
        left.items.insert(left.items.end(), right.items.begin(), right.items.end());
      } else if (plus && left.kind == Kind::kText && right.kind == Kind::kText) {
        if (left.text.size() + right.text.size() > kMostPythonBytes) return Unknown();
        left.text += right.text;
      } else {
        left = Combine(left, right, plus ? '+' : '-');
      }
    }
    return left;
  }

  Result<PythonValue> Product() {
    ORRERY_ASSIGN_OR_RETURN(PythonValue left, Atom());
    for (Blank();
         at_ < text_.size() && (text_[at_] == '*' || text_[at_] == '/' || text_[at_] == '%');
         Blank()) {
      char op = text_[at_++];
      if (at_ < text_.size() && text_[at_] == op && op != '%') {
        op = op == '*' ? '^' : '|';
        ++at_;
      }
      ORRERY_ASSIGN_OR_RETURN(const PythonValue right, Atom());
      left = Combine(left, right, op);
    }
    return left;
  }

  PythonValue Combine(const PythonValue& a, const PythonValue& b, char op) const {
    const auto x = NumberOf(a), y = NumberOf(b);
    if (!x || !y || ((op == '/' || op == '|' || op == '%') && *y == 0)) return Unknown();
    double value = 0;
    switch (op) {
      case '+':
        value = *x + *y;
        break;
      case '-':
        value = *x - *y;
        break;
      case '*':
        value = *x * *y;
        break;
      case '/':
        value = *x / *y;
        break;
      case '|':
        value = std::floor(*x / *y);
        break;
      case '%':
        value = *x - std::floor(*x / *y) * *y;
        break;
      default: {  // whole powers, by hand
        if (*y < 0 || *y > 64 || *y != std::floor(*y)) return Unknown();
        value = 1;
        for (int i = 0; i < static_cast<int>(*y); ++i) value *= *x;
      }
    }
    if (!(std::abs(value) < 1e300)) return Unknown();
    return Make(Kind::kNumber, TextOfNumber(value));
  }

  Result<PythonValue> Atom() {
    Blank();
    if (at_ >= text_.size()) return Unknown();
    const char c = text_[at_];
    if (c == '-') {
      ++at_;
      ORRERY_ASSIGN_OR_RETURN(const PythonValue inner, Nested([&] { return Atom(); }));
      return Combine(Make(Kind::kNumber, "0"), inner, '-');
    }
    if (c == '[' || c == '(') {
      ++at_;
      return Brackets(c == '[' ? ']' : ')', c == '(');
    }
    if (c == '{') {
      ++at_;
      return Dictionary();
    }
    if (c == '"' || c == '\'') return Strings();
    if (std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '.') return Number();
    if (IsPythonLetter(c)) return Name();
    ++at_;
    return Unknown();
  }

  template <typename F>
  Result<PythonValue> Nested(F read) {
    ++depth_;
    Result<PythonValue> value =
        depth_ > kMostPythonDepth
            ? Result<PythonValue>(InvalidInput("{}:{}: more than {} levels of brackets and calls",
                                               module_->name(), line_, kMostPythonDepth))
            : read();
    --depth_;
    return value;
  }

  // A value up to a comma or a closing bracket; a comparison or condition in it makes it unknown.
  Result<PythonValue> Element() {
    return Nested([&]() -> Result<PythonValue> {
      ORRERY_ASSIGN_OR_RETURN(PythonValue value, Sum());
      Blank();
      if (at_ >= text_.size() || Contained(",)]}:")) return value;
      SkipTo();
      return Unknown();
    });
  }
  bool Contained(std::string_view set) const { return set.find(text_[at_]) != std::string::npos; }
  void SkipTo() {
    int open = 0;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '"' || c == '\'') {
        at_ = EndOfPythonString(text_, at_) - 1;
        continue;
      }
      if (open == 0 && Contained(",)]}")) return;
      if (c == '(' || c == '[' || c == '{') ++open;
      if (c == ')' || c == ']' || c == '}') --open;
    }
  }

  Result<PythonValue> Brackets(char close, bool round) {
    PythonValue list = Make(Kind::kList, "");
    bool comma = false;
    for (;;) {
      if (Takes(std::string_view(&close, 1)) || at_ >= text_.size()) break;
      ORRERY_ASSIGN_OR_RETURN(PythonValue item, Element());
      list.items.push_back(std::move(item));
      const bool more = Takes(",");
      comma = comma || more;
      if (!more) {
        Takes(std::string_view(&close, 1));
        break;
      }
    }
    if (round && !comma && list.items.size() == 1) {
      PythonValue inner = std::move(list.items.front());
      return inner;
    }
    return list;
  }

  Result<PythonValue> Dictionary() {
    PythonValue map = Make(Kind::kMap, "");
    while (!Takes("}") && at_ < text_.size()) {
      ORRERY_ASSIGN_OR_RETURN(const PythonValue key, Element());
      if (!Takes(":")) {
        SkipTo();
      } else {
        ORRERY_ASSIGN_OR_RETURN(PythonValue value, Element());
        map.fields.push_back({key.text, std::move(value)});
      }
      if (!Takes(",")) {
        Takes("}");
        break;
      }
    }
    return map;
  }

  // Strings that stand beside each other are one.
  Result<PythonValue> Strings() {
    std::string joined;
    for (Blank(); at_ < text_.size() && (text_[at_] == '"' || text_[at_] == '\''); Blank()) {
      const std::size_t end = EndOfPythonString(text_, at_);
      const std::size_t quotes =
          text_.substr(at_).starts_with(std::string(3, text_[at_])) && end - at_ >= 6 ? 3 : 1;
      if (end - at_ >= 2 * quotes) joined += text_.substr(at_ + quotes, end - at_ - 2 * quotes);
      at_ = end;
    }
    return Make(Kind::kText, std::move(joined));
  }

  Result<PythonValue> Number() {
    const std::size_t from = at_;
    while (at_ < text_.size() && (IsPythonName(text_[at_]) || text_[at_] == '.' ||
                                  ((text_[at_] == '+' || text_[at_] == '-') &&
                                   (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E')))) {
      ++at_;
    }
    std::string digits(text_.substr(from, at_ - from));
    std::erase(digits, '_');
    PythonValue number = Make(Kind::kNumber, digits);
    const auto value = NumberOf(number);
    if (!value) return Unknown();
    number.text = TextOfNumber(*value);
    return number;
  }

  // a.b.c, f(x, y=z), and what stands behind in square brackets, which is not followed.
  Result<PythonValue> Name() {
    const std::size_t from = at_;
    while (at_ < text_.size() && (IsPythonName(text_[at_]) || text_[at_] == '.')) ++at_;
    const std::string name(text_.substr(from, at_ - from));
    if (name == "True" || name == "False") return Make(Kind::kBool, name);
    if (name == "None") return Make(Kind::kNone, name);
    if (name == "f" || name == "r" || name == "b" || name == "rb" || name == "fr") {
      if (at_ < text_.size() && (text_[at_] == '"' || text_[at_] == '\'')) {
        ORRERY_ASSIGN_OR_RETURN(PythonValue text, Strings());
        if (name.find('f') != std::string::npos && Contains('{', text.text)) return Unknown();
        return text;
      }
    }
    Blank();
    if (at_ < text_.size() && text_[at_] == '(') {
      ++at_;
      return CallOf(name);
    }
    if (at_ < text_.size() && text_[at_] == '[') {
      ++at_;
      SkipTo();
      Takes("]");
      return Unknown();
    }
    const PythonValue* known = scope_.names->At(name);
    if (known == nullptr && scope_.outer != nullptr) known = scope_.outer->At(name);
    if (known != nullptr) {
      ORRERY_RETURN_IF_ERROR(Charge(*known));
      return *known;
    }
    return Make(Kind::kUnknown, name);
  }
  static bool Contains(char c, const std::string& text) {
    return text.find(c) != std::string::npos;
  }
  // A copy costs what it holds.
  Status Charge(const PythonValue& value) {
    ORRERY_RETURN_IF_ERROR(module_->Count(line_));
    for (const PythonValue& item : value.items) ORRERY_RETURN_IF_ERROR(Charge(item));
    for (const auto& [key, field] : value.fields) ORRERY_RETURN_IF_ERROR(Charge(field));
    return {};
  }

  Result<PythonValue> CallOf(const std::string& name) {
    PythonValue call = Make(Kind::kCall, name);
    while (!Takes(")") && at_ < text_.size()) {
      Blank();
      const std::size_t from = at_;
      std::size_t end = at_;
      while (end < text_.size() && IsPythonName(text_[end])) ++end;
      std::size_t equals = std::min(text_.find_first_not_of(" \t\n", end), text_.size());
      const bool named = end > from && equals < text_.size() && text_[equals] == '=' &&
                         text_.substr(equals, 2) != "==";
      if (named) at_ = equals + 1;
      while (!named && Takes("*")) {
      }
      ORRERY_ASSIGN_OR_RETURN(PythonValue value, Element());
      if (named) {
        call.fields.push_back({std::string(text_.substr(from, end - from)), std::move(value)});
      } else {
        call.items.push_back(std::move(value));
      }
      if (!Takes(",")) {
        Takes(")");
        break;
      }
    }
    if (name == "dict") {
      call.kind = Kind::kMap;
      call.text.clear();
    } else if (call.items.empty() && call.fields.empty() && module_->Has(name)) {
      return Nested([&] { return module_->Call(name, depth_); });
    }
    return call;
  }

  std::string_view text_;
  std::int32_t line_;
  PythonScope scope_;
  PythonModule* module_;
  int depth_;
  std::size_t at_ = 0;
};

// Where "NAME =" or "a.b: type =" ends; npos: it is none. "NAME *=" has the operator beside it.
std::size_t EndOfTarget(std::string_view text, std::string* target, std::string* op) {
  std::size_t at = 0;
  while (at < text.size() && (IsPythonName(text[at]) || text[at] == '.')) ++at;
  if (at == 0 || !IsPythonLetter(text[0])) return std::string_view::npos;
  *target = std::string(text.substr(0, at));
  std::size_t equals = std::min(text.find_first_not_of(" \t", at), text.size());
  if (equals < text.size() && text[equals] == ':') {
    equals = std::min(text.find('=', equals), text.size());
  }
  const std::size_t symbols = text.find_first_not_of("+-*/", equals);
  if (symbols != std::string_view::npos && text[symbols] == '=') {
    *op = text.substr(equals, symbols - equals);
    equals = symbols;
  }
  if (equals >= text.size() || text[equals] != '=' || text.substr(equals, 2) == "==") {
    return std::string_view::npos;
  }
  return equals + 1;
}

void AssignPython(std::string_view path, PythonValue value, PythonValue* to) {
  const std::size_t dot = path.find('.');
  const std::string_view key = path.substr(0, dot);
  const auto found = std::ranges::find(to->fields, key, &PythonField::key);
  PythonValue* place = nullptr;
  if (found == to->fields.end()) {
    to->fields.push_back({std::string(key), PythonValue{.kind = Kind::kMap}});
    place = &to->fields.back().value;
  } else {
    place = &found->value;
  }
  if (dot == std::string_view::npos) {
    *place = std::move(value);
    return;
  }
  if (place->kind != Kind::kMap && place->kind != Kind::kCall) *place = {.kind = Kind::kMap};
  AssignPython(path.substr(dot + 1), std::move(value), place);
}

Result<PythonValue> PythonModule::Run(const std::vector<PythonStatement>& body,
                                      const PythonScope& scope, int depth) {
  if (depth > kMostPythonDepth) {
    return InvalidInput("{}: functions call each other more than {} deep", name_, kMostPythonDepth);
  }
  std::size_t indent = body.empty() ? 0 : body.front().indent;
  for (const PythonStatement& statement : body) {
    if (statement.indent != indent) continue;
    const std::string_view text = TrimmedView(statement.text);
    if (text.starts_with("return ")) {
      return PythonExpression(text.substr(7), statement.line, scope, this, depth).Whole();
    }
    std::string target, op;
    const std::size_t equals = EndOfTarget(text, &target, &op);
    if (equals == std::string_view::npos || std::ranges::count(target, '.') > kMostPythonDepth) {
      continue;
    }
    std::string value_of(text.substr(equals));
    if (!op.empty()) value_of = fmt::format("{} {} ({})", target, op, value_of);
    ORRERY_ASSIGN_OR_RETURN(PythonValue value,
                            PythonExpression(value_of, statement.line, scope, this, depth).Whole());
    AssignPython(target, std::move(value), scope.names);
  }
  return PythonValue{.kind = Kind::kNone};
}

Status CheckPythonSize(std::string_view text, const std::string& name) {
  if (text.size() <= kMostPythonBytes) return {};
  return InvalidInput("{}: larger than {} MiB; this is no configuration", Printable(name),
                      kMostPythonBytes >> 20);
}

}  // namespace

const PythonValue* PythonValue::Find(std::string_view key) const {
  const auto found = std::ranges::find(fields, key, &PythonField::key);
  return found == fields.end() ? nullptr : &found->value;
}

const PythonValue* PythonValue::At(std::string_view path) const {
  const PythonValue* value = this;
  while (value != nullptr && !path.empty()) {
    const std::size_t dot = std::min(path.find('.'), path.size());
    value = value->Find(path.substr(0, dot));
    path.remove_prefix(std::min(dot + 1, path.size()));
  }
  return value;
}

void SetPython(std::string_view path, const std::string& text, std::int32_t line, PythonValue* to) {
  PythonValue value{.kind = Kind::kNumber, .text = text, .line = line};
  if (text == "True" || text == "False" || text == "true" || text == "false") {
    value.kind = Kind::kBool;
  } else if (text == "None") {
    value.kind = Kind::kNone;
  } else if (!NumberOf(value)) {
    value.kind = Kind::kText;
  }
  AssignPython(path, std::move(value), to);
}

Result<PythonFile> ReadPython(std::string_view text, const std::string& name) {
  ORRERY_RETURN_IF_ERROR(CheckPythonSize(text, name));
  PythonModule module(text, Printable(name));
  PythonFile file;
  ORRERY_ASSIGN_OR_RETURN(file.values, module.Values());
  file.functions = module.Functions();
  return file;
}

Result<PythonValue> CallPython(std::string_view text, const std::string& name,
                               const std::string& function) {
  ORRERY_RETURN_IF_ERROR(CheckPythonSize(text, name));
  PythonModule module(text, Printable(name));
  return module.Call(function, 0);
}

}  // namespace orrery::recipes
