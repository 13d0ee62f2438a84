#include "orrery/recipes/shell_expand.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "orrery/recipes/shell_lexer.h"
#include "orrery/recipes/shell_paths.h"

namespace orrery::recipes {
namespace {

constexpr std::size_t kMostExpandedBytes = 8 << 20;
constexpr int kMostNesting = 32;

bool IsNameStart(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_'; }
bool IsNamePart(char c) { return IsNameStart(c) || (c >= '0' && c <= '9'); }

std::size_t EndOfName(std::string_view text, std::size_t at) {
  while (at < text.size() && IsNamePart(text[at])) ++at;
  return at;
}

// Integer arithmetic as bash has it: + - * / % and brackets; names are variables.
class Arithmetic {
 public:
  Arithmetic(std::string_view text, const Variables& variables, std::string* unknown)
      : text_(text), variables_(variables), unknown_(unknown) {}

  std::optional<std::int64_t> Run() {
    const std::optional<std::int64_t> value = Sum(0);
    Blank();
    return at_ == text_.size() ? value : std::nullopt;
  }

 private:
  using Value = std::optional<std::int64_t>;

  Value Sum(int depth) {
    Value left = Product(depth);
    for (Blank(); left && at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-'); Blank()) {
      const bool plus = text_[at_++] == '+';
      const Value right = Product(depth);
      std::int64_t sum = 0;
      if (!right || (plus ? __builtin_add_overflow(*left, *right, &sum)
                          : __builtin_sub_overflow(*left, *right, &sum))) {
        return std::nullopt;
      }
      left = sum;
    }
    return left;
  }
  Value Product(int depth) {
    Value left = Atom(depth);
    for (Blank(); left && at_ < text_.size() &&
                  (text_[at_] == '*' || text_[at_] == '/' || text_[at_] == '%');
         Blank()) {
      const char op = text_[at_++];
      const Value right = Atom(depth);
      std::int64_t product = 0;
      if (!right || (op != '*' && (*right == 0 || *right == -1)) ||
          (op == '*' && __builtin_mul_overflow(*left, *right, &product))) {
        return std::nullopt;
      }
      left = op == '*' ? product : op == '/' ? *left / *right : *left % *right;
    }
    return left;
  }
  Value Atom(int depth) {
    Blank();
    if (at_ >= text_.size() || depth > kMostNesting) return std::nullopt;
    if (text_[at_] == '(') {
      ++at_;
      const Value inner = Sum(depth + 1);
      Blank();
      if (at_ >= text_.size() || text_[at_] != ')') return std::nullopt;
      ++at_;
      return inner;
    }
    if (text_[at_] == '-') {
      ++at_;
      const Value inner = Atom(depth + 1);
      return inner ? Value(-*inner) : inner;
    }
    if (text_[at_] == '$') ++at_;
    const std::size_t end = EndOfName(text_, at_);
    const std::string_view name = text_.substr(at_, end - at_);
    at_ = end;
    if (!name.empty() && IsNameStart(name[0])) return OfVariable(std::string(name));
    return Number(name);
  }
  Value OfVariable(const std::string& name) {
    const Variable* variable = variables_.Find(name);
    if (variable == nullptr || variable->items.empty()) {
      if (unknown_->empty()) *unknown_ = name;
      return std::nullopt;
    }
    if (unknown_->empty()) *unknown_ = variable->items[0].unknown;
    return Number(variable->items[0].text);
  }
  static Value Number(std::string_view text) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
  }
  void Blank() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n')) {
      ++at_;
    }
  }

  std::string_view text_;
  const Variables& variables_;
  std::string* unknown_;
  std::size_t at_ = 0;
};

// Builds the words of one written word.
class Expander {
 public:
  Expander(Variables* variables, std::int32_t line, int depth)
      : variables_(variables), line_(line), depth_(depth) {}

  Status Run(std::string_view raw, bool quoted) {
    for (std::size_t at = 0; at < raw.size();) {
      const char c = raw[at];
      if (c == '\\' && at + 1 < raw.size()) {
        const char next = raw[at + 1];
        // Inside of double quotes a backslash stays but before these.
        if (quoted && next != '"' && next != '$' && next != '`' && next != '\\' && next != '\n') {
          Add("\\");
        }
        if (next != '\n') Add(std::string_view(&raw[at + 1], 1));
        at += 2;
      } else if (c == '\'' && !quoted) {
        const std::size_t end = EndOfExpansion(raw, at);
        Add(raw.substr(at + 1, end - at - 2));
        at = end;
      } else if (c == '"' && !quoted) {
        const std::size_t end = EndOfExpansion(raw, at);
        open_ = true;
        ORRERY_RETURN_IF_ERROR(Run(raw.substr(at + 1, end - at - 2), true));
        at = end;
      } else if (c == '`') {
        const std::size_t end = EndOfExpansion(raw, at);
        ORRERY_RETURN_IF_ERROR(Output(raw.substr(at, end - at), 1));
        at = end == std::string_view::npos ? raw.size() : end;
      } else if (c == '$' && at + 1 < raw.size()) {
        ORRERY_RETURN_IF_ERROR(Dollar(raw, quoted, &at));
      } else {
        Add(std::string_view(&raw[at], 1));
        ++at;
      }
    }
    return {};
  }

  std::vector<Word> Take() {
    if (open_) words_.push_back(std::move(word_));
    return std::move(words_);
  }

 private:
  Status Dollar(std::string_view raw, bool quoted, std::size_t* at) {
    const char next = raw[*at + 1];
    if (next == '{' || next == '(') {
      const std::size_t end = EndOfExpansion(raw, *at);
      if (end == std::string_view::npos) {
        Add("$");
        ++*at;
        return {};
      }
      const std::string_view whole = raw.substr(*at, end - *at);
      *at = end;
      if (whole.starts_with("$((") && whole.ends_with("))")) return Sum(whole);
      if (next == '(') return Output(whole, 2);
      return Braces(whole.substr(2, whole.size() - 3), quoted);
    }
    if (IsNameStart(next)) {
      const std::size_t end = EndOfName(raw, *at + 1);
      AddVariable(std::string(raw.substr(*at + 1, end - *at - 1)), false, quoted);
      *at = end;
      return {};
    }
    if (next == '@' || next == '*' || next == '#' || (next >= '0' && next <= '9')) {
      AddVariable(std::string(1, next), next == '@', quoted);
      *at += 2;
      return {};
    }
    Add("$");
    ++*at;
    return {};
  }

  // What a command writes: known of `expr A / B`, which is arithmetic on its words, and of commands
  // that say where the script lies.
  Status Output(std::string_view whole, std::size_t open) {
    constexpr std::string_view kExpr = "expr ";
    const std::size_t close = std::min(whole.size(), open + 1);
    std::string_view inside = whole.substr(open, whole.size() - close);
    inside.remove_prefix(std::min(inside.find_first_not_of(' '), inside.size()));
    if (inside.starts_with(kExpr)) {
      ORRERY_ASSIGN_OR_RETURN(Word words, Nested(inside.substr(kExpr.size())));
      std::erase_if(words.text, [](char c) { return c == '\\' || c == '"' || c == '\''; });
      const bool numbers = words.text.find_first_not_of("0123456789+-*/%() ") == std::string::npos;
      const auto value = Arithmetic(words.text, *variables_, &words.unknown).Run();
      if (numbers && value) {
        Add(fmt::format("{}", *value));
        return {};
      }
      if (!words.unknown.empty()) {
        AddUnknown(std::string(whole), words.unknown);
        return {};
      }
    }
    ORRERY_ASSIGN_OR_RETURN(const Word path, PathOf(inside));
    if (path.unknown.empty()) {
      Add(path.text);
    } else {
      AddUnknown(std::string(whole), path.unknown);
    }
    return {};
  }

  Result<Word> PathOf(std::string_view commands) {
    Word path{.unknown = "a command's output"};
    if (depth_ >= kMostNesting) return path;
    ORRERY_ASSIGN_OR_RETURN(const Tokens tokens, Tokenise(commands, "a command"));
    std::vector<std::vector<std::string>> words(1);
    std::string unknown;
    for (std::size_t i = 0; i < tokens.all.size(); ++i) {
      const Token& token = tokens.all[i];
      if (token.kind == Token::Kind::kOperator && (token.text == "&&" || token.text == ";")) {
        words.emplace_back();
      } else if (token.kind == Token::Kind::kOperator) {
        if (token.text.find_first_of("<>") == std::string::npos) return path;
        const bool numbered = !words.back().empty() && words.back().back().size() == 1 &&
                              words.back().back()[0] >= '0' && words.back().back()[0] <= '9';
        if (numbered) words.back().pop_back();  // 2>/dev/null
        ++i;                                    // where to
      } else if (token.kind == Token::Kind::kWord) {
        Expander inner(variables_, line_, depth_ + 1);
        ORRERY_RETURN_IF_ERROR(inner.Run(token.text, false));
        for (Word& word : inner.Take()) {
          if (unknown.empty()) unknown = word.unknown;
          words.back().push_back(std::move(word.text));
        }
      } else if (token.kind == Token::Kind::kArray) {
        return path;
      }
    }
    const Variable* folder = variables_->Find("PWD");
    if (folder != nullptr && !folder->items.empty() && unknown.empty()) {
      unknown = folder->items[0].unknown;
    }
    const std::string from =
        folder == nullptr || folder->items.empty() ? "." : folder->items[0].text;
    std::optional<std::string> written = PathOutput(words, from);
    if (!written) return path;
    path.text = *std::move(written);
    path.unknown = unknown;
    return path;
  }

  Status Sum(std::string_view whole) {
    std::string unknown;
    ORRERY_ASSIGN_OR_RETURN(const Word inside, Nested(whole.substr(3, whole.size() - 5)));
    unknown = inside.unknown;
    const auto value = Arithmetic(inside.text, *variables_, &unknown).Run();
    if (value) {
      Add(fmt::format("{}", *value));
    } else {
      AddUnknown(std::string(whole), unknown.empty() ? std::string(whole) : unknown);
    }
    return {};
  }

  // ${NAME}, ${NAME[@]}, ${NAME:-default} and its kin.
  Status Braces(std::string_view inside, bool quoted) {
    std::size_t end = EndOfName(inside, 0);
    if (end == 0 && !inside.empty() && (inside[0] == '@' || inside[0] == '*')) end = 1;
    if (inside.starts_with('0')) end = 1;
    const std::string name(inside.substr(0, end));
    std::string_view rest = inside.substr(end);
    bool all = false;
    if (rest.starts_with("[@]") || rest.starts_with("[*]")) {
      all = true;
      rest.remove_prefix(3);
    } else if (rest.starts_with("[0]")) {
      rest.remove_prefix(3);
    }
    const Variable* variable = variables_->Find(name);
    if (rest == "%/*" && variable != nullptr && !variable->items.empty()) {
      Word folder = variable->items[0];
      folder.text = folder.text.substr(0, folder.text.rfind('/'));
      if (word_.unknown.empty()) word_.unknown = folder.unknown;
      Add(folder.text);
      return {};
    }
    if (rest.empty() && !name.empty()) {
      AddVariable(name, all, quoted);
      return {};
    }
    const bool colon = rest.starts_with(':');
    if (colon) rest.remove_prefix(1);
    const char op = rest.empty() ? ' ' : rest[0];
    const bool set =
        variable != nullptr && (!colon || (!variable->items.empty() &&
                                           (!variable->items[0].text.empty() || variable->array)));
    if (name.empty() || (op != '-' && op != '=' && op != '+' && op != '?')) {
      AddUnknown(fmt::format("${{{}}}", inside), name.empty() ? std::string(inside) : name);
      return {};
    }
    if (op == '+' ? !set : set) {
      if (op != '+') AddVariable(name, all, quoted);
      return {};
    }
    if (op == '?') {
      AddUnknown("$" + name, name);
      return {};
    }
    if (op == '=') {  // ${NAME:=default} sets it
      ORRERY_ASSIGN_OR_RETURN(Word value, Nested(rest.substr(1)));
      value.line = line_;
      variables_->Set(name, {.items = {std::move(value)}});
      AddVariable(name, all, quoted);
      return {};
    }
    if (++depth_ > kMostNesting) return InvalidInput("expansions nest too deep");
    Status status = Run(rest.substr(1), quoted);
    --depth_;
    return status;
  }

  Result<Word> Nested(std::string_view raw) {
    if (depth_ >= kMostNesting) return InvalidInput("expansions nest too deep");
    Expander inner(variables_, line_, depth_ + 1);
    ORRERY_RETURN_IF_ERROR(inner.Run(raw, true));
    std::vector<Word> words = inner.Take();
    return words.empty() ? Word{} : std::move(words[0]);
  }

  void AddVariable(const std::string& name, bool all, bool quoted) {
    const Variable* variable = variables_->Find(name);
    if (variable == nullptr) {
      if (name == "@" || name == "*") return;  // no arguments were given
      AddUnknown("$" + name, name);
      return;
    }
    const std::size_t count = all || !variable->array
                                  ? variable->items.size()
                                  : std::min<std::size_t>(1, variable->items.size());
    for (std::size_t i = 0; i < count; ++i) {
      const Word& item = variable->items[i];
      if (i > 0) Close();
      if (quoted) {
        if (word_.unknown.empty()) word_.unknown = item.unknown;
        Add(item.text);
      } else {
        Split(item.text, item.unknown);
      }
    }
  }

  // At blanks. What is not known stands in the text as it was written ($NAME, $(command)): it stays
  // whole, and its word alone carries `unknown`.
  void Split(std::string_view text, const std::string& unknown) {
    for (std::size_t at = 0; at < text.size();) {
      const char c = text[at];
      std::size_t end = at + 1;
      if (c == ' ' || c == '\t' || c == '\n') {
        Close();
        at = end;
        continue;
      }
      if (!unknown.empty() && (c == '$' || c == '`')) {
        if (word_.unknown.empty()) word_.unknown = unknown;
        const bool opens =
            c == '`' || (end < text.size() && (text[end] == '(' || text[end] == '{'));
        if (opens) end = std::min(EndOfExpansion(text, at), text.size());
      } else {
        end = std::min(text.find_first_of(unknown.empty() ? " \t\n" : " \t\n$`", at), text.size());
      }
      Add(text.substr(at, end - at));
      at = end;
    }
  }
  void Add(std::string_view text) {
    word_.text += text;
    open_ = true;
  }
  void AddUnknown(std::string_view text, const std::string& name) {
    if (word_.unknown.empty()) word_.unknown = name;
    Add(text);
  }
  void Close() {
    if (open_) {
      word_.line = line_;
      words_.push_back(std::move(word_));
    }
    word_ = Word{.line = line_};
    open_ = false;
  }

  Variables* variables_;
  std::int32_t line_;
  int depth_;
  std::vector<Word> words_;
  Word word_ = {};
  bool open_ = false;
};

}  // namespace

Variables::Variables(const std::map<std::string, std::string>& environment) {
  for (const auto& [name, value] : environment) Set(name, {.items = {{.text = value}}});
}

void Variables::Set(const std::string& name, Variable value) { values_[name] = std::move(value); }

const Variable* Variables::Find(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : &found->second;
}

Result<std::vector<Word>> Variables::Expand(std::string_view raw, std::int32_t line) {
  Expander expander(this, line, 0);
  ORRERY_RETURN_IF_ERROR(expander.Run(raw, false));
  std::vector<Word> words = expander.Take();
  std::size_t bytes = 0;
  for (Word& word : words) {
    word.line = line;
    bytes += word.text.size() + 1;
  }
  ORRERY_RETURN_IF_ERROR(Count(bytes));
  return words;
}

Status Variables::Count(std::size_t bytes) {
  bytes_ += bytes;
  if (bytes_ <= kMostExpandedBytes) return {};
  return InvalidInput("its variables grow to more than {} MiB", kMostExpandedBytes >> 20);
}

Result<Word> Variables::ExpandText(std::string_view raw, std::int32_t line) {
  Expander expander(this, line, 0);
  ORRERY_RETURN_IF_ERROR(expander.Run(raw, true));
  std::vector<Word> words = expander.Take();
  Word text = words.empty() ? Word{} : std::move(words.front());
  text.line = line;
  ORRERY_RETURN_IF_ERROR(Count(text.text.size()));
  return text;
}

Result<Word> Variables::ExpandOne(std::string_view raw, std::int32_t line) {
  ORRERY_ASSIGN_OR_RETURN(std::vector<Word> words, Expand(raw, line));
  Word joined{.line = line};
  for (const Word& word : words) {
    if (!joined.text.empty()) joined.text += ' ';
    joined.text += word.text;
    if (joined.unknown.empty()) joined.unknown = word.unknown;
  }
  return joined;
}

}  // namespace orrery::recipes
