// orrery: simulates a distributed training job. Parses the command line and runs one verb.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "interrupt.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/job/simulate.h"
#include "session.h"
#include "simai_arguments.h"
#include "verb.h"

namespace orrery::app {
namespace {

// The command that was given: the verb, or what it has below (calibrate run).
CLI::App* Given(CLI::App* app) {
  const std::vector<CLI::App*> parsed = app->get_subcommands();
  return parsed.empty() ? app : Given(parsed.front());
}

std::vector<std::string> Subcommands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands({})) names.push_back(sub->get_name());
  return names;
}

// Options are checked here rather than by CLI11, whose message knows no neighbours.
Status CheckExtras(const CLI::App& app, const std::string& command) {
  const std::vector<std::string> extras = app.remaining();
  if (extras.empty()) return {};
  const std::string& word = extras.front();
  if (!word.starts_with("-")) {
    const std::vector<std::string> subcommands = Subcommands(app);
    if (!subcommands.empty()) {
      const std::vector<std::string_view> valid(subcommands.begin(), subcommands.end());
      return InvalidInput("{}",
                          UnknownName("command of '" + command + "'", Printable(word), valid));
    }
    const bool key = word.find('=') != std::string::npos;
    return InvalidInput("'{}' takes no further argument '{}'{}", command, Printable(word),
                        key ? "; each key needs its option before it, as in --set KEY=VALUE" : "");
  }
  const std::string name = word.substr(0, word.find('='));
  std::vector<std::string> texts;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& text : option->get_lnames()) texts.push_back("--" + text);
  }
  const std::vector<std::string_view> valid(texts.begin(), texts.end());
  return InvalidInput("{}", UnknownName("option", Printable(name), valid));
}

// CLI11's complaint in our words. What stands behind a mistyped option is taken for an argument too
// many, so the option comes first.
Status Misuse(CLI::App* app, const CLI::ParseError& error) {
  CLI::App* given = Given(app);
  std::string command = "orrery";
  if (given != app && given->get_parent() != app) command += " " + given->get_parent()->get_name();
  if (given != app) command += " " + given->get_name();
  const std::vector<std::string> extras = given->remaining();
  if (given != app && !extras.empty() && extras.front().starts_with("-")) {
    ORRERY_RETURN_IF_ERROR(CheckExtras(*given, command));
  }
  std::string text = error.what();
  constexpr std::string_view kNoNumber = "Could not convert: ";
  if (text.starts_with(kNoNumber)) {
    text = text.substr(kNoNumber.size());
    const std::size_t equals = text.find(" = ");
    text = text.substr(0, equals) + ": '" + text.substr(equals + 3) + "' is not a number";
  }
  const auto replace = [&text](std::string_view ending, std::string_view by) {
    if (text.ends_with(ending)) text.replace(text.size() - ending.size(), ending.size(), by);
  };
  replace(": 1 required TEXT missing", " needs a value");
  if (text.ends_with(" was given a disallowed flag override")) {
    text = "--" + text.substr(0, text.find(' ')) + " takes no value";
  }
  if (const auto at = text.find(": At Most 1 required but received"); at != std::string::npos) {
    text.replace(at, std::string::npos, ": given more than once; give it once");
  }
  replace(" is required", fmt::format(" is missing; '{} --help' says what it is", command));
  return InvalidInput("{}", Printable(text, 400));
}

// An empty text is a variable that the shell did not know; verbs take it for "not given".
void RefuseEmpty(CLI::App* app) {
  for (CLI::Option* option : app->get_options()) {
    if (option->get_items_expected_max() == 0) {  // a flag: --no-fold=1 would be one too
      option->disable_flag_override();
      continue;
    }
    option->check([](const std::string& text) {
      return text.empty() ? std::string("is empty; give a value or leave the option out") : "";
    });
  }
  for (CLI::App* sub : app->get_subcommands({})) RefuseEmpty(sub);
}

Status Dispatch(CLI::App* app, const std::vector<std::unique_ptr<Verb>>& verbs, Session* session) {
  for (const std::unique_ptr<Verb>& verb : verbs) {
    const CLI::App* chosen = app->get_subcommand(std::string(verb->name()));
    if (!chosen->parsed()) continue;
    const std::vector<std::string> before = app->remaining();
    if (!before.empty() && chosen->get_prefix_command() && chosen->remaining().empty()) {
      return InvalidInput("its options come first: 'orrery {} --world-size N -- {} …'",
                          verb->name(), Printable(before.front()));
    }
    if (!before.empty()) {
      return InvalidInput("'{}' stands before the command; write 'orrery {} … {}'",
                          Printable(before.front()), verb->name(), Printable(before.front()));
    }
    if (!chosen->get_prefix_command()) {
      ORRERY_RETURN_IF_ERROR(CheckExtras(*chosen, fmt::format("orrery {}", verb->name())));
      const CLI::App* given = Given(app);
      if (given != chosen) {
        ORRERY_RETURN_IF_ERROR(
            CheckExtras(*given, fmt::format("orrery {} {}", verb->name(), given->get_name())));
      }
    }
    return ExplainWrongKind(verb->Run(session), verb->reads());
  }
  const std::vector<std::string> extras = app->remaining();
  if (extras.empty()) {
    return InvalidInput(
        "which command? 'orrery --help' lists them; start with 'orrery simulate "
        "examples/llama3.1-405b-16k-h100.yaml'");
  }
  if (extras.front().starts_with("-")) {
    return InvalidInput("{}; the options of a command stand behind it",
                        UnknownName("option", Printable(extras.front()),
                                    std::vector<std::string_view>{"--help", "--version"}));
  }
  std::vector<std::string_view> names;
  for (const std::unique_ptr<Verb>& verb : verbs) names.push_back(verb->name());
  return InvalidInput("{}", UnknownName("command", Printable(extras.front()), names));
}

int Run(int argc, char** argv, Session* session) {
  CLI::App app("Orrery simulates a distributed training job on a cluster that you do not have.",
               "orrery");
  app.set_version_flag("--version", fmt::format("orrery {}", job::Version()));
  app.allow_extras();
  app.require_subcommand(0, 1);  // an argument behind a command is none, whatever it is called
  app.footer(
      "Exit status: 0 success; 1 the job cannot run (out of device memory, deadlock);\n"
      "2 bad input or usage; 3 out of memory, disk or quota, or an internal error;\n"
      "130 interrupted, 143 ended by SIGTERM, 129 by a hang-up.\n");
  const std::vector<std::unique_ptr<Verb>> verbs = AllVerbs();
  for (const std::unique_ptr<Verb>& verb : verbs) {
    CLI::App* sub = app.add_subcommand(std::string(verb->name()), std::string(verb->description()));
    sub->allow_extras();
    verb->Declare(sub);
    sub->footer(fmt::format("{}Examples:\n{}", sub->get_footer(), verb->examples()));
    RefuseEmpty(sub);
  }
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (IsSimaiCommand(words)) {
    std::vector<std::string> notes;
    Result<std::vector<std::string>> own = FromSimai(
        words, [](const char* name) { return std::getenv(name); }, &notes);
    if (!own.ok()) return session->Finish(std::move(own).TakeStatus());
    words = *std::move(own);
    for (const std::string& note : notes) session->Note(note);
  }
  try {
    std::reverse(words.begin(), words.end());  // as CLI11 wants them
    app.parse(std::move(words));
  } catch (const CLI::Success& help) {
    const int status = app.exit(help, std::cout, std::cerr);
    errno = 0;
    std::cout.flush();
    if (std::cout.good() || errno == EPIPE) return status;  // orrery --help | head
    return session->Finish(ResourceError("cannot write to stdout: {}", std::strerror(errno)));
  } catch (const CLI::ParseError& error) {
    return session->Finish(Misuse(&app, error));
  }
  return session->Finish(Dispatch(&app, verbs, session));
}

int Main(int argc, char** argv) {
  Session session(argc, argv);
  InstallSignalHandlers(session.json_to_stdout());
  // At once, on whatever thread: unwinding would have to stop threads that wait for each other.
  std::set_new_handler(EndOutOfMemory);
  try {
    return Run(argc, argv, &session);
  } catch (const std::bad_alloc&) {
    EndOutOfMemory();
  } catch (const std::exception& error) {
    return session.Finish(ResourceError("internal error: {}", Printable(error.what(), 400)));
  }
}

}  // namespace
}  // namespace orrery::app

int main(int argc, char** argv) { return orrery::app::Main(argc, argv); }
