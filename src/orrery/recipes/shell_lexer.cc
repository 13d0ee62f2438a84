#include "orrery/recipes/shell_lexer.h"

#include "orrery/base/text.h"

namespace orrery::recipes {
namespace {

constexpr std::size_t kMostTokens = 200'000;

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r'; }
bool IsOperator(char c) {
  return c == ';' || c == '&' || c == '|' || c == '(' || c == ')' || c == '<' || c == '>';
}

// "NAME=" or "NAME+=" and nothing else.
bool IsAssignment(std::string_view word) {
  if (!word.ends_with('=')) return false;
  word.remove_suffix(word.ends_with("+=") ? 2 : 1);
  if (word.empty() || (word[0] >= '0' && word[0] <= '9')) return false;
  return word.find_first_not_of(
             "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") ==
         std::string_view::npos;
}

class Lexer {
 public:
  Lexer(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  Result<Tokens> Run() {
    while (at_ < text_.size()) {
      ORRERY_RETURN_IF_ERROR(Next());
      if (tokens_.size() > kMostTokens) {
        return InvalidInput("{}: more than {} words; this is no launch script", name_, kMostTokens);
      }
    }
    Push(Token::Kind::kNewline, "\n");
    return Tokens{.all = std::move(tokens_), .here_documents = std::move(bodies_)};
  }

 private:
  Status Next() {
    const char c = text_[at_];
    if (c == '\n') {
      Push(Token::Kind::kNewline, "\n");
      ++at_;
      ++line_;
      SkipHereDocuments();
      return {};
    }
    if (IsBlank(c)) {
      ++at_;
      return {};
    }
    if (text_.substr(at_).starts_with("\\\n") || text_.substr(at_).starts_with("\\\r\n")) {
      at_ = text_.find('\n', at_) + 1;
      ++line_;
      return {};
    }
    if (c == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
      return {};
    }
    if (IsOperator(c)) return Operator();
    return WordOrArray();
  }

  Status Operator() {
    const std::string_view rest = text_.substr(at_);
    for (const std::string_view longer :
         {"<<<", "<<-", ";;", "&&", "||", ">>", "<<", ">&", "<&", "&>"}) {
      if (!rest.starts_with(longer)) continue;
      Push(Token::Kind::kOperator, longer);
      at_ += longer.size();
      if (longer == "<<" || longer == "<<-") ReadHereWord();
      return {};
    }
    Push(Token::Kind::kOperator, rest.substr(0, 1));
    ++at_;
    return {};
  }

  void ReadHereWord() {
    while (at_ < text_.size() && IsBlank(text_[at_])) ++at_;
    HereDocument here{.operator_at = tokens_.size() - 1};
    while (at_ < text_.size() && !IsBlank(text_[at_]) && text_[at_] != '\n' &&
           !IsOperator(text_[at_])) {
      const bool quote = text_[at_] == '"' || text_[at_] == '\'' || text_[at_] == '\\';
      here.quoted = here.quoted || quote;
      if (!quote) here.end += text_[at_];
      ++at_;
    }
    here_.push_back(std::move(here));
  }

  // Bodies begin on the line behind their command.
  void SkipHereDocuments() {
    for (const HereDocument& here : here_) {
      const std::int32_t line = line_;
      std::string body;
      while (at_ < text_.size()) {
        const std::size_t end = std::min(text_.find('\n', at_), text_.size());
        std::string_view row = text_.substr(at_, end - at_);
        while (!row.empty() && row.front() == '\t') row.remove_prefix(1);
        at_ = std::min(end + 1, text_.size());
        ++line_;
        if (row == here.end) break;
        body += row;
        body += '\n';
      }
      std::vector<std::string>& items = tokens_[here.operator_at].items;
      items.push_back(body);
      if (here.quoted) items.emplace_back("quoted");
      bodies_.emplace_back(std::move(body), line);
    }
    here_.clear();
  }

  // A word as written, up to a blank or an operator outside of quotes and expansions.
  Result<std::string> RawWord() {
    std::string word;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\\' && at_ + 1 < text_.size()) {
        if (text_[at_ + 1] == '\n') {  // continued without a blank
          at_ += 2;
          ++line_;
          continue;
        }
        word += text_.substr(at_, 2);
        at_ += 2;
        continue;
      }
      const bool opens =
          c == '"' || c == '\'' || c == '`' ||
          (c == '$' && at_ + 1 < text_.size() && (text_[at_ + 1] == '{' || text_[at_ + 1] == '('));
      if (opens) {
        const std::size_t end = EndOfExpansion(text_, at_);
        if (end == std::string_view::npos) {
          return InvalidInput("{}:{}: what begins here with {} has no end", name_, line_, c);
        }
        const std::string_view part = text_.substr(at_, end - at_);
        for (const char p : part) line_ += p == '\n' ? 1 : 0;
        word += part;
        at_ = end;
        continue;
      }
      if (IsBlank(c) || c == '\n' || IsOperator(c)) break;
      word += c;
      ++at_;
    }
    return word;
  }

  Status WordOrArray() {
    const std::int32_t line = line_;
    ORRERY_ASSIGN_OR_RETURN(std::string word, RawWord());
    if (at_ < text_.size() && text_[at_] == '(' && IsAssignment(word)) {
      ++at_;
      return Array(std::move(word), line);
    }
    Push(Token::Kind::kWord, word);
    tokens_.back().line = line;
    return {};
  }

  Status Array(std::string name, std::int32_t line) {
    Token token{.kind = Token::Kind::kArray, .text = std::move(name), .line = line};
    while (at_ < text_.size() && text_[at_] != ')') {
      const char c = text_[at_];
      if (c == '\n') ++line_;
      if (c == '\n' || IsBlank(c)) {
        ++at_;
      } else if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (IsOperator(c)) {
        return InvalidInput("{}:{}: '{}' inside of an array; put it in quotes", name_, line_, c);
      } else {
        ORRERY_ASSIGN_OR_RETURN(std::string item, RawWord());
        if (!item.empty()) token.items.push_back(std::move(item));
      }
    }
    if (at_ >= text_.size()) {
      return InvalidInput("{}:{}: the array {} has no ')'", name_, line, Printable(token.text, 40));
    }
    ++at_;
    tokens_.push_back(std::move(token));
    return {};
  }

  void Push(Token::Kind kind, std::string_view text) {
    tokens_.push_back({.kind = kind, .text = std::string(text), .line = line_});
  }

  std::string_view text_;
  std::string name_;
  std::size_t at_ = 0;
  std::int32_t line_ = 1;
  struct HereDocument {
    std::size_t operator_at;  // of tokens_
    std::string end = {};     // the line that ends it
    bool quoted = false;
  };
  std::vector<HereDocument> here_;
  std::vector<std::pair<std::string, std::int32_t>> bodies_;
  std::vector<Token> tokens_;
};

}  // namespace

std::size_t EndOfExpansion(std::string_view text, std::size_t at) {
  const char open = text[at];
  if (open == '\'' || open == '`') {
    const std::size_t end = text.find(open, at + 1);
    return end == std::string_view::npos ? end : end + 1;
  }
  // Brackets and double quotes nest in each other: a stack of what is awaited.
  std::string awaited;
  for (std::size_t i = at; i < text.size(); ++i) {
    const char c = text[i];
    const bool quoted = !awaited.empty() && awaited.back() == '"';
    if (c == '\\') {
      ++i;
      continue;
    }
    if (!awaited.empty() && c == awaited.back()) {
      awaited.pop_back();
      if (awaited.empty()) return i + 1;
    } else if (c == '`') {  // a command, whose quotes are its own
      i = text.find('`', i + 1);
      if (i == std::string_view::npos) return i;
    } else if (c == '"') {
      awaited += '"';
    } else if (c == '\'' && !quoted) {
      i = text.find('\'', i + 1);
      if (i == std::string_view::npos) return i;
    } else if (c == '$' && i + 1 < text.size() && (text[i + 1] == '{' || text[i + 1] == '(')) {
      awaited += text[++i] == '{' ? '}' : ')';
    } else if (c == '(' && !quoted) {
      awaited += ')';
    }
    if (awaited.size() > 64) return std::string_view::npos;
  }
  return std::string_view::npos;
}

Result<Tokens> Tokenise(std::string_view text, const std::string& name) {
  return Lexer(text, name).Run();
}

}  // namespace orrery::recipes
