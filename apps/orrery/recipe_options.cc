#include "recipe_options.h"

#include <fmt/format.h>

#include <sstream>

#include "arguments.h"
#include "orrery/base/text.h"

namespace orrery::app {

void RecipeOptions::Declare(CLI::App* app) {
  app->add_option("--cluster", cluster,
                  "Recipes, traces: the cluster they run on ('orrery list clusters'), or its file");
  app->add_option("--nodes", nodes,
                  "Recipes, traces: hosts they run on, where the file does not say")
      ->transform(WholeIn(1, 1 << 20));
  app->add_option("--gpus", gpus, "Recipes: GPUs they run on, where the file does not say")
      ->transform(WholeIn(1, 1 << 23));
  app->add_option("--model", model,
                  "Recipes: the model ('orrery list models') or its config.json, where the file "
                  "names none that is known");
  app->add_option(
      "--from", from,
      "Recipes: which kind FILE is ('orrery list recipes'); default: found from its content");
  app->add_option("--env", env, "Recipes: NAME=VALUE, a variable of a script's environment")
      ->allow_extra_args(false);
  app->add_option("--args", args,
                  "Recipes: what a script is started with, in one pair of quotes ($1, $2, …)");
  app->add_option("--leave-out", leave_out,
                  "Recipes: an argument to go on without; 'unknown' means all that are not known")
      ->allow_extra_args(false);
}

Result<recipes::Options> RecipeOptions::Resolve() const {
  recipes::Options options{
      .dialect = from, .cluster = cluster, .model = model, .nodes = nodes, .gpus = gpus};
  if (gpus > 0 && nodes > 0) {
    return InvalidInput("--gpus {} and --nodes {}: give one of them", gpus, nodes);
  }
  for (const std::string& pair : env) {
    const std::size_t equals = pair.find('=');
    if (equals == std::string::npos || equals == 0) {
      return InvalidInput("--env {}: write NAME=VALUE, for example --env NNODES=16",
                          Printable(pair));
    }
    options.variables[pair.substr(0, equals)] = pair.substr(equals + 1);
  }
  if (!args.empty()) {
    std::size_t count = 0;
    std::istringstream words(args);
    for (std::string word; words >> word;) options.variables[fmt::format("{}", ++count)] = word;
    options.variables["@"] = options.variables["*"] = args;
    options.variables["#"] = fmt::format("{}", count);
  }
  options.leave_out = leave_out;
  options.read.set = set;
  return options;
}

}  // namespace orrery::app
