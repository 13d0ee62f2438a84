#include "orrery/recipes/shell.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

#include "orrery/base/text.h"
#include "orrery/recipes/reading.h"
#include "orrery/recipes/shell_expand.h"
#include "orrery/recipes/shell_lexer.h"
#include "orrery/recipes/shell_paths.h"

namespace orrery::recipes {
namespace {

constexpr std::size_t kMostScriptBytes = 1 << 20;
constexpr int kMostScripts = 50;
constexpr std::size_t kMostTexts = 64;  // here documents and texts for other shells
constexpr int kMostFiles = 16;          // that a script takes in

bool IsWord(const Token& token, std::string_view text) {
  return token.kind == Token::Kind::kWord && token.text == text;
}
bool IsOperator(const Token& token, std::string_view text) {
  return token.kind == Token::Kind::kOperator && token.text == text;
}

// The length of NAME in "NAME=…" or "NAME+=…"; 0: no assignment.
std::size_t AssignedName(std::string_view word) {
  std::size_t at = 0;
  while (at < word.size() &&
         (word[at] == '_' || (word[at] >= 'A' && word[at] <= 'Z') ||
          (word[at] >= 'a' && word[at] <= 'z') || (at > 0 && word[at] >= '0' && word[at] <= '9'))) {
    ++at;
  }
  const std::string_view rest = word.substr(at);
  return at > 0 && (rest.starts_with('=') || rest.starts_with("+=")) ? at : 0;
}

// "#SBATCH --nodes=4 --ntasks-per-node=8", "#SBATCH -N 4".
void ReadDirectives(std::string_view text, Script* script) {
  constexpr std::pair<std::string_view, std::string_view> kShort[] = {
      {"-N", "nodes"}, {"-n", "ntasks"}, {"-G", "gpus"}};
  std::int32_t line = 0;
  while (!text.empty()) {
    std::string_view row = TakeLine(&text);
    ++line;
    if (!row.starts_with("#SBATCH")) continue;
    row.remove_prefix(7);
    row = row.substr(0, std::min(row.find('#'), row.size()));
    std::vector<std::string> words;  // of "--key=value" and "-K value" alike
    while (!row.empty()) {
      const std::size_t stop = std::min(row.find_first_of(" \t\r="), row.size());
      if (stop > 0) words.emplace_back(row.substr(0, stop));
      row.remove_prefix(std::min(stop + 1, row.size()));
    }
    for (std::size_t i = 0; i < words.size(); ++i) {
      std::string key = words[i];
      for (const auto& [shorter, longer] : kShort) {
        if (key == shorter) key = fmt::format("--{}", longer);
      }
      if (!key.starts_with("--")) continue;
      const bool valued = i + 1 < words.size() && !words[i + 1].starts_with('-');
      script->directives.emplace_back(key.substr(2),
                                      Word{.text = valued ? words[i + 1] : "", .line = line});
    }
  }
}

// $0 and BASH_SOURCE of the script that is read.
void SayWhere(const std::string& path, Variables* variables) {
  variables->Set("0", {.items = {{.text = path}}});
  variables->Set("BASH_SOURCE", {.items = {{.text = path}}, .array = true});
}

class Interpreter {
 public:
  Interpreter(std::vector<Token> tokens, std::string name,
              const std::map<std::string, std::string>* given, Variables* variables, Script* script)
      : tokens_(std::move(tokens)),
        name_(std::move(name)),
        given_(given),
        variables_(variables),
        script_(script) {}

  Status Run() {
    while (at_ < tokens_.size()) {
      ORRERY_RETURN_IF_ERROR(Statements(true, 0));
      if (at_ < tokens_.size()) ++at_;  // a word that closes nothing
    }
    return {};
  }

 private:
  bool AtEnd() const { return at_ >= tokens_.size(); }
  const Token& Now() const { return tokens_[at_]; }

  static bool Closes(const Token& token) {
    static const std::set<std::string, std::less<>> kClosers = {"then", "elif", "else", "fi",
                                                                "do",   "done", "esac", "}"};
    return (token.kind == Token::Kind::kWord && kClosers.contains(token.text)) ||
           IsOperator(token, ";;") || IsOperator(token, ")");
  }

  // Up to a word that closes what was opened before.
  Status Statements(bool run, int depth) {
    if (depth > kMostScripts) {
      return InvalidInput("{}:{}: more than {} blocks in each other", name_, Now().line,
                          kMostScripts);
    }
    while (!AtEnd() && !Closes(Now())) {
      if (Now().kind == Token::Kind::kNewline || Now().kind == Token::Kind::kOperator ||
          IsWord(Now(), "{") || IsWord(Now(), "!")) {
        const bool opens = IsWord(Now(), "{") || IsOperator(Now(), "(");
        ++at_;
        if (opens) {
          ORRERY_RETURN_IF_ERROR(Statements(run, depth + 1));
          if (!AtEnd()) ++at_;
        }
        continue;
      }
      ORRERY_RETURN_IF_ERROR(Statement(run, depth));
    }
    return {};
  }

  Status Statement(bool run, int depth) {
    if (IsWord(Now(), "if")) return If(run, depth);
    if (IsWord(Now(), "for") || IsWord(Now(), "while") || IsWord(Now(), "until")) {
      return Loop(run, depth);
    }
    if (IsWord(Now(), "case")) return Case(run, depth);
    if (IsWord(Now(), "function")) {
      at_ += 2;  // its body follows, and is read here
      if (!AtEnd() && IsOperator(Now(), "(")) at_ += 2;
      return {};
    }
    if (at_ + 2 < tokens_.size() && Now().kind == Token::Kind::kWord &&
        IsOperator(tokens_[at_ + 1], "(") && IsOperator(tokens_[at_ + 2], ")")) {
      at_ += 3;
      return {};
    }
    return Simple(run);
  }

  Status If(bool run, int depth) {
    bool done = false;  // a branch was taken
    while (!AtEnd() && (IsWord(Now(), "if") || IsWord(Now(), "elif"))) {
      const std::int32_t line = Now().line;
      ++at_;
      const std::size_t from = at_;
      while (!AtEnd() && !IsWord(Now(), "then")) ++at_;
      bool taken = false;
      if (run && !done) {
        ORRERY_ASSIGN_OR_RETURN(taken, Holds(from, at_, line));
      }
      if (!AtEnd()) ++at_;
      ORRERY_RETURN_IF_ERROR(Statements(run && taken, depth + 1));
      done = done || taken;
    }
    if (!AtEnd() && IsWord(Now(), "else")) {
      ++at_;
      ORRERY_RETURN_IF_ERROR(Statements(run && !done, depth + 1));
    }
    if (!AtEnd() && IsWord(Now(), "fi")) ++at_;
    return {};
  }

  // [ A = B ], [[ -n A ]] and their kin over words that the script knows; else taken for false, and
  // said.
  Result<bool> Holds(std::size_t from, std::size_t to, std::int32_t line) {
    std::vector<Word> words;
    for (std::size_t i = from; i < to; ++i) {
      const Token& token = tokens_[i];
      if (token.kind == Token::Kind::kNewline || IsOperator(token, ";")) continue;
      if (token.kind != Token::Kind::kWord) {
        words.push_back({.text = token.text, .line = line});
        continue;
      }
      ORRERY_ASSIGN_OR_RETURN(Word word, variables_->ExpandOne(token.text, line));
      words.push_back(std::move(word));
    }
    std::string unset;
    for (const Word& word : words) {
      if (unset.empty()) unset = word.unknown;
    }
    const std::optional<bool> held = Decide(words);
    if (held && !unset.empty()) {
      script_->notes.push_back(
          fmt::format("line {}: 'if' decided with {} not set", line, Printable(unset, 60)));
    }
    if (held) return *held;
    script_->notes.push_back(
        fmt::format("line {}: this 'if' was not decided, and taken for false", line));
    return false;
  }

  // Tests in brackets with && and || between them, from left to right.
  static std::optional<bool> Decide(const std::vector<Word>& words) {
    std::optional<bool> held;
    std::string joint = "||";
    std::vector<Word> test;
    bool brackets = false, negated = false;
    const auto close = [&] {
      std::optional<bool> one = brackets ? Compare(test) : std::nullopt;
      if (one && negated) one = !*one;
      // What decides alone needs not know the other.
      const bool decides = joint == "||";
      if (held != std::optional<bool>(decides)) {
        held = one == std::optional<bool>(decides) || held ? one : held;
      }
      test.clear();
      negated = false;
    };
    held = false;
    for (const Word& word : words) {
      if (word.unknown.empty() && (word.text == "&&" || word.text == "||")) {
        close();
        joint = word.text;
      } else if (word.unknown.empty() &&
                 (word.text == "[" || word.text == "[[" || word.text == "]" || word.text == "]]")) {
        brackets = true;
      } else if (word.unknown.empty() && word.text == "!" && test.empty()) {
        negated = true;
      } else {
        test.push_back(word);
      }
    }
    close();
    return held;
  }

  static std::string Known(const Word& word) { return word.unknown.empty() ? word.text : ""; }

  static std::optional<bool> Compare(std::vector<Word> w) {
    if (!w.empty() && w.front().text == "!" && w.front().unknown.empty()) {
      const auto inner = Compare({w.begin() + 1, w.end()});
      return inner ? std::optional<bool>(!*inner) : inner;
    }
    if (w.size() == 1) return !Known(w[0]).empty();
    if (w.size() == 2 && w[0].text == "-z") return Known(w[1]).empty();
    if (w.size() == 2 && w[0].text == "-n") return !Known(w[1]).empty();
    if (w.size() != 3) return std::nullopt;
    const std::string a = Known(w[0]), b = Known(w[2]), op = w[1].text;
    if (op == "=" || op == "==") return a == b;
    if (op == "!=") return a != b;
    std::int64_t x = 0, y = 0;
    const auto number = [](const std::string& text, std::int64_t* to) {
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *to);
      return error == std::errc() && end == text.data() + text.size();
    };
    if (!number(a, &x) || !number(b, &y)) return std::nullopt;
    if (op == "-eq") return x == y;
    if (op == "-ne") return x != y;
    if (op == "-lt") return x < y;
    if (op == "-le") return x <= y;
    if (op == "-gt") return x > y;
    if (op == "-ge") return x >= y;
    return std::nullopt;
  }

  // The first turn of a `for` over words; the body of other loops is not read.
  Status Loop(bool run, int depth) {
    const std::int32_t line = Now().line;
    const bool over =
        IsWord(Now(), "for") && at_ + 3 < tokens_.size() && IsWord(tokens_[at_ + 2], "in");
    bool turn = false;
    if (over && run) {
      ORRERY_ASSIGN_OR_RETURN(std::vector<Word> words,
                              variables_->Expand(tokens_[at_ + 3].text, line));
      turn = !words.empty() && tokens_[at_ + 3].kind == Token::Kind::kWord;
      if (turn) variables_->Set(tokens_[at_ + 1].text, {.items = {words.front()}});
    }
    while (!AtEnd() && !IsWord(Now(), "do")) ++at_;
    if (!AtEnd()) ++at_;
    if (run) {
      script_->notes.push_back(turn ? fmt::format("line {}: of this loop the first turn", line)
                                    : fmt::format("line {}: this loop was passed over", line));
    }
    ORRERY_RETURN_IF_ERROR(Statements(run && turn, depth + 1));
    if (!AtEnd() && IsWord(Now(), "done")) ++at_;
    return {};
  }

  Status Case(bool run, int depth) {
    const std::int32_t line = Now().line;
    Word subject;
    if (at_ + 1 < tokens_.size()) {
      ORRERY_ASSIGN_OR_RETURN(subject, variables_->ExpandOne(tokens_[at_ + 1].text, line));
    }
    while (!AtEnd() && !IsWord(Now(), "in")) ++at_;
    if (!AtEnd()) ++at_;
    bool done = false;
    while (!AtEnd() && !IsWord(Now(), "esac")) {
      bool matches = false;
      while (!AtEnd() && !IsOperator(Now(), ")") && !IsWord(Now(), "esac")) {
        if (Now().kind == Token::Kind::kWord) {
          ORRERY_ASSIGN_OR_RETURN(const Word pattern, variables_->ExpandOne(Now().text, line));
          matches = matches || pattern.text == "*" ||
                    (subject.unknown.empty() && pattern.text == subject.text);
        }
        ++at_;
      }
      if (AtEnd() || IsWord(Now(), "esac")) break;
      ++at_;
      ORRERY_RETURN_IF_ERROR(Statements(run && matches && !done, depth + 1));
      done = done || matches;
      if (!AtEnd() && IsOperator(Now(), ";;")) ++at_;
      while (!AtEnd() && Now().kind == Token::Kind::kNewline) ++at_;
    }
    if (run && !subject.unknown.empty()) {
      script_->notes.push_back(fmt::format("line {}: 'case' decided with {} not set", line,
                                           Printable(subject.unknown, 60)));
    }
    if (!AtEnd()) ++at_;
    return {};
  }

  // Assignments, and the words of one command up to its end; redirections are passed over.
  Status Simple(bool run) {
    std::vector<Word> words;
    bool assigns = true;
    const Token* here = nullptr;  // its here document
    Word output;                  // the file that it writes
    while (!AtEnd() && Now().kind != Token::Kind::kNewline) {
      const Token& token = Now();
      if (token.kind == Token::Kind::kOperator) {
        const bool redirects = token.text[0] == '<' || token.text[0] == '>' || token.text == "&>";
        if (!redirects) break;
        ++at_;
        if (token.text == "<<" || token.text == "<<-") {
          here = &token;
        } else if (!AtEnd() && Now().kind == Token::Kind::kWord) {
          if (run && token.text == ">") {
            ORRERY_ASSIGN_OR_RETURN(output, variables_->ExpandOne(Now().text, token.line));
          }
          ++at_;
        }
        continue;
      }
      ++at_;
      if (!run) continue;
      if (token.kind == Token::Kind::kArray) {
        ORRERY_RETURN_IF_ERROR(AssignArray(token));
        continue;
      }
      const bool declares = !words.empty() && words.size() == 1 &&
                            (words[0].text == "export" || words[0].text == "local" ||
                             words[0].text == "declare" || words[0].text == "readonly");
      if ((assigns && words.empty()) || declares) {
        if (AssignedName(token.text) > 0) {
          ORRERY_RETURN_IF_ERROR(Assign(token));
          continue;
        }
      }
      assigns = false;
      if (declares) continue;
      ORRERY_ASSIGN_OR_RETURN(std::vector<Word> expanded,
                              variables_->Expand(token.text, token.line));
      words.insert(words.end(), expanded.begin(), expanded.end());
    }
    if (words.empty()) return {};
    if (words.front().text == "cd") ChangeFolder(words);
    if (words.front().text == "read" && here != nullptr && !here->items.empty()) {
      return ReadHere(words.back().text, *here);
    }
    if (!output.text.empty()) ORRERY_RETURN_IF_ERROR(Write(words, here, output.text));
    ORRERY_ASSIGN_OR_RETURN(const bool taken, TakeIn(words));
    if (taken) return {};
    script_->commands.push_back(std::move(words));
    return {};
  }

  // read -r -d '' NAME <<EOF: the variable has the text.
  Status ReadHere(const std::string& name, const Token& here) {
    if (given_->contains(name)) return {};
    Word text{.text = here.items.front(), .line = here.line};
    if (here.items.size() == 1) {
      ORRERY_ASSIGN_OR_RETURN(text, variables_->ExpandText(text.text, text.line));
    }
    while (text.text.ends_with('\n')) text.text.pop_back();
    variables_->Set(name, {.items = {std::move(text)}});
    return {};
  }

  void ChangeFolder(const std::vector<Word>& command) {
    Word folder{.line = command.front().line};
    std::vector<std::string> texts;
    for (const Word& word : command) {
      texts.push_back(word.text);
      if (folder.unknown.empty()) folder.unknown = word.unknown;
    }
    const Variable* before = variables_->Find("PWD");
    const std::optional<std::string> to = FolderAfter(
        texts, before == nullptr || before->items.empty() ? "." : before->items[0].text);
    if (!to && folder.unknown.empty()) folder.unknown = "HOME";
    folder.text = to.value_or("$HOME");
    variables_->Set("PWD", {.items = {std::move(folder)}});
  }

  // Where a command names another script of the user's; 0: nowhere. `starts`: with arguments of its
  // own.
  static std::size_t ScriptOf(const std::vector<Word>& command, bool* starts) {
    const std::string& first = command.front().text;
    *starts = first == "bash" || first == "sh" || first == "sbatch";
    if (command.size() < 2) return 0;
    if (first == "source" || first == ".") return 1;
    if (first == "sbatch") {
      const auto file = std::ranges::find_if(command, [](const Word& word) {
        return word.text.ends_with(".sh") || word.text.ends_with(".slurm") ||
               word.text.ends_with(".sbatch");
      });
      return file == command.end() ? 0 : static_cast<std::size_t>(file - command.begin());
    }
    return *starts && !command[1].text.starts_with('-') ? 1 : 0;
  }

  // Reads it where it is named. A folder that a command says is not known: the file is looked for
  // by its name alone.
  Result<bool> TakeIn(const std::vector<Word>& command) {
    bool starts = false;
    const std::size_t at = ScriptOf(command, &starts);
    if (at == 0) return false;
    const Word& file = command[at];
    const std::string path =
        file.unknown.empty() ? file.text : file.text.substr(file.text.rfind('/') + 1);
    ORRERY_ASSIGN_OR_RETURN(const std::optional<File> found, OpenNamed(path, name_));
    if (!found || script_->files_taken >= kMostFiles) {
      script_->notes.push_back(fmt::format("line {}: '{}' {}", file.line, Printable(file.text, 80),
                                           found ? "is one file too many" : "was not found"));
      return false;
    }
    ++script_->files_taken;
    for (std::size_t i = at + 1; starts && i < command.size(); ++i) {
      variables_->Set(std::to_string(i - at), {.items = {command[i]}});
    }
    if (command.front().text == "sbatch") {  // it says how many hosts
      script_->commands.push_back(command);
      ReadDirectives(found->text, script_);
    }
    ORRERY_ASSIGN_OR_RETURN(Tokens tokens, Tokenise(found->text, found->path));
    for (Token& token : tokens.all) token.line = file.line;  // where the user's own script names it
    const Variable source = {.items = {{.text = found->path}}, .array = true};
    variables_->Set("BASH_SOURCE", source);
    if (starts) variables_->Set("0", {.items = source.items});
    ORRERY_RETURN_IF_ERROR(
        Interpreter(std::move(tokens.all), name_, given_, variables_, script_).Run());
    SayWhere(name_, variables_);
    return true;
  }

  // The file that a command writes whose output is known without running it.
  Status Write(const std::vector<Word>& command, const Token* here, const std::string& file) {
    Word text;
    if (command.front().text == "cat" && here != nullptr && !here->items.empty()) {
      text = {.text = here->items.front(), .line = here->line};
      if (here->items.size() == 1) {
        ORRERY_ASSIGN_OR_RETURN(text, variables_->ExpandText(text.text, text.line));
      }
    } else if (command.front().text == "echo") {
      for (std::size_t i = 1; i < command.size(); ++i) {
        text.text += (i > 1 ? " " : "") + command[i].text;
        if (text.unknown.empty()) text.unknown = command[i].unknown;
      }
    } else {
      return {};
    }
    script_->files[file] = std::move(text);
    return {};
  }

  Status Assign(const Token& token) {
    const std::size_t length = AssignedName(token.text);
    const std::string name = token.text.substr(0, length);
    if (given_->contains(name)) return {};
    const bool adds = token.text[length] == '+';
    const std::string_view raw = std::string_view(token.text).substr(length + (adds ? 2 : 1));
    ORRERY_ASSIGN_OR_RETURN(Word value, variables_->ExpandOne(raw, token.line));
    const Variable* before = variables_->Find(name);
    if (adds && before != nullptr && !before->items.empty()) {
      value.text = before->items[0].text + value.text;
      if (value.unknown.empty()) value.unknown = before->items[0].unknown;
    }
    variables_->Set(name, {.items = {std::move(value)}});
    return {};
  }

  Status AssignArray(const Token& token) {
    const bool adds = token.text.ends_with("+=");
    const std::string name = token.text.substr(0, token.text.size() - (adds ? 2 : 1));
    Variable value{.array = true};
    if (const Variable* before = variables_->Find(name); adds && before != nullptr) {
      value.items = before->items;
    }
    for (const std::string& item : token.items) {
      ORRERY_ASSIGN_OR_RETURN(std::vector<Word> words, variables_->Expand(item, token.line));
      value.items.insert(value.items.end(), words.begin(), words.end());
    }
    variables_->Set(name, std::move(value));
    return {};
  }

  std::vector<Token> tokens_;
  std::string name_;
  const std::map<std::string, std::string>* given_;
  Variables* variables_;
  Script* script_;
  std::size_t at_ = 0;
};

}  // namespace

Result<Script> ReadScript(std::string_view text, const std::string& name,
                          const std::map<std::string, std::string>& variables) {
  if (text.size() > kMostScriptBytes) {
    return InvalidInput("{}: larger than {} MiB; this is no launch script", name,
                        kMostScriptBytes >> 20);
  }
  Script script;
  ReadDirectives(text, &script);
  Variables values(variables);
  SayWhere(name, &values);
  if (values.Find("PWD") == nullptr) values.Set("PWD", {.items = {{.text = "."}}});
  std::vector<std::pair<std::string, std::int32_t>> texts = {{std::string(text), 0}};
  // Behind the script itself: here documents, and what a command hands to another shell as text
  // (bash -c "torchrun …", eval, a string of words).
  for (std::size_t i = 0, read = 0; i < texts.size() && i < kMostTexts; ++i) {
    ORRERY_ASSIGN_OR_RETURN(Tokens tokens, Tokenise(texts[i].first, name));
    const std::int32_t line = texts[i].second;
    if (line > 0) {
      for (Token& token : tokens.all) token.line = line;
    }
    for (auto& here : tokens.here_documents) texts.push_back(std::move(here));
    Status status = Interpreter(std::move(tokens.all), name, &variables, &values, &script).Run();
    if (!status.ok()) return std::move(status).In(name);
    for (; read < script.commands.size(); ++read) {
      for (const Word& word : script.commands[read]) {
        if (word.text.find(" --") != std::string::npos) texts.emplace_back(word.text, word.line);
      }
    }
  }
  for (const auto& [variable, value] : values.all()) {
    if (!value.array && !value.items.empty()) script.exported[variable] = value.items[0];
  }
  return script;
}

}  // namespace orrery::recipes
