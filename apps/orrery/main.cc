// orrery: rehearses a distributed training job. Parses the command line and runs one verb.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <iostream>
#include <new>

#include "interrupt.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/job/simulate.h"
#include "session.h"
#include "verb.h"

namespace orrery::app {
namespace {

// Options are checked here rather than by CLI11, whose message knows no neighbours.
Status CheckExtras(const CLI::App& app, const Verb& verb) {
  const std::vector<std::string> extras = app.remaining();
  if (extras.empty()) return {};
  const std::string& word = extras.front();
  if (!word.starts_with("-")) {
    return InvalidInput("'orrery {}' takes no further argument '{}'", verb.name(), Printable(word));
  }
  const std::string name = word.substr(0, word.find('='));
  std::vector<std::string> texts;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& text : option->get_lnames()) texts.push_back("--" + text);
  }
  const std::vector<std::string_view> valid(texts.begin(), texts.end());
  return InvalidInput("{}", UnknownName("option", Printable(name), valid));
}

// An empty text is a variable that the shell did not know; verbs take it for "not given".
void RefuseEmpty(CLI::App* app) {
  for (CLI::Option* option : app->get_options()) {
    if (option->get_type_size() == 0) continue;  // a flag
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
    if (!chosen->get_prefix_command()) ORRERY_RETURN_IF_ERROR(CheckExtras(*chosen, *verb));
    return verb->Run(session);
  }
  const std::vector<std::string> extras = app->remaining();
  if (extras.empty()) {
    return InvalidInput(
        "which command? 'orrery --help' lists them; start with 'orrery simulate "
        "examples/llama3.1-405b-16k-h100.yaml'");
  }
  std::vector<std::string_view> names;
  for (const std::unique_ptr<Verb>& verb : verbs) names.push_back(verb->name());
  return InvalidInput("{}", UnknownName("command", Printable(extras.front()), names));
}

int Main(int argc, char** argv) {
  Session session(argc, argv);
  InstallSignalHandlers(session.json_to_stdout());
  CLI::App app("Orrery rehearses a distributed training job on a cluster that you do not have.",
               "orrery");
  app.set_version_flag("--version", fmt::format("orrery {}", job::Version()));
  app.allow_extras();
  app.footer(
      "Exit status: 0 success; 1 the simulation says no (out of device memory, deadlock);\n"
      "2 bad input or usage; 3 out of memory, disk or quota, or an internal error;\n"
      "130 interrupted.");
  const std::vector<std::unique_ptr<Verb>> verbs = AllVerbs();
  for (const std::unique_ptr<Verb>& verb : verbs) {
    CLI::App* sub = app.add_subcommand(std::string(verb->name()), std::string(verb->description()));
    sub->allow_extras();
    verb->Declare(sub);
    RefuseEmpty(sub);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help, std::cout, std::cerr);
  } catch (const CLI::ParseError& error) {
    return session.Finish(InvalidInput("{}", Printable(error.what(), 400)));
  }
  return session.Finish(Dispatch(&app, verbs, &session));
}

}  // namespace
}  // namespace orrery::app

int main(int argc, char** argv) {
  try {
    return orrery::app::Main(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("orrery: out of memory; try fewer ranks, folding, or a machine with more memory\n",
               stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "orrery: internal error: %s\n", error.what());
  }
  return 3;
}
