#include "orrery/graph/forms/text_line.h"

#include <charconv>

namespace orrery::graph {
namespace {

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

// Shown in messages: without control characters, and not too much of it.
std::string Shown(std::string_view text) {
  std::string shown;
  for (const char c : text.substr(0, 40)) {
    shown += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  }
  return text.size() > 40 ? shown + "…" : shown;
}

}  // namespace

Status TextLine::Cut(std::string_view line) {
  tokens_.clear();
  next_ = 0;
  std::size_t at = 0;
  for (;;) {
    while (at < line.size() && IsBlank(line[at])) ++at;
    if (at == line.size() || (tokens_.empty() && line[at] == '#')) return {};
    Token token;
    if (line[at] != '"') {
      const std::size_t start = at;
      while (at < line.size() && !IsBlank(line[at]) && line[at] != '=' && line[at] != '"') ++at;
      const std::string_view word = line.substr(start, at - start);
      if (at < line.size() && line[at] == '=') {
        ++at;
        token.field = true;
        token.key = word;
      } else {
        token.value = word;
      }
    }
    if (token.field || (at < line.size() && line[at] == '"' && token.value.empty())) {
      ORRERY_RETURN_IF_ERROR(CutValue(line, &at, &token));
    }
    if (at < line.size() && !IsBlank(line[at])) {
      return InvalidInput("a blank is missing before '{}'", Shown(line.substr(at)));
    }
    tokens_.push_back(std::move(token));
  }
}

Status TextLine::CutValue(std::string_view line, std::size_t* at, Token* token) const {
  if (*at == line.size() || line[*at] != '"') {
    while (*at < line.size() && !IsBlank(line[*at]) && line[*at] != '"') {
      token->value += line[(*at)++];
    }
    return {};
  }
  token->quoted = true;
  for (++*at; *at < line.size(); ++*at) {
    const char c = line[*at];
    if (c == '"') {
      ++*at;
      return {};
    }
    if (c != '\\') {
      token->value += c;
      continue;
    }
    const char escape = *at + 1 < line.size() ? line[++*at] : ' ';
    if (escape == '"' || escape == '\\') {
      token->value += escape;
      continue;
    }
    unsigned code = 0;
    const char* digits = line.data() + *at + 1;
    if (escape != 'x' || *at + 2 >= line.size() ||
        std::from_chars(digits, digits + 2, code, 16).ptr != digits + 2) {
      return InvalidInput("unknown escape \\{}; valid: \\\" \\\\ \\xNN", Shown({&escape, 1}));
    }
    token->value += static_cast<char>(code);
    *at += 2;
  }
  return InvalidInput("a string without its closing quote");
}

const TextLine::Token* TextLine::Next() {
  while (next_ < tokens_.size() && tokens_[next_].field) ++next_;
  if (next_ == tokens_.size()) return nullptr;
  tokens_[next_].used = true;
  return &tokens_[next_++];
}

const TextLine::Token* TextLine::Field(std::string_view key) {
  for (Token& token : tokens_) {
    if (token.used || !token.field || token.key != key) continue;
    token.used = true;
    return &token;
  }
  return nullptr;
}

Status TextLine::Done() const {
  for (const Token& token : tokens_) {
    if (token.used) continue;
    if (token.field) return InvalidInput("unknown or repeated field '{}'", Shown(token.key));
    return InvalidInput("unexpected '{}'", Shown(token.value));
  }
  return {};
}

}  // namespace orrery::graph
