#include "orrery/recipes/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace orrery::recipes {
namespace {

bool Prints(const Word& word) {
  return word.text == "echo" || word.text == "printf" || word.text == "cat";
}

// A number into `to`, or the variable that stands for it.
void Take(const Word& word, std::int64_t* to, Launch* launch) {
  std::int64_t value = 0;
  const char* end = word.text.data() + word.text.size();
  const auto [at, error] = std::from_chars(word.text.data(), end, value);
  if (!word.unknown.empty()) {
    if (launch->unknown.empty()) launch->unknown = "$" + word.unknown;
  } else if (error == std::errc() && value > 0 && (at == end || *at == ':')) {  // torchrun's 1:4
    *to = value;
  }
}

void ReadOption(const std::string& name, const Word& value, Launch* launch) {
  std::string plain = name;
  std::ranges::replace(plain, '_', '-');
  if (plain == "--nproc-per-node" || plain == "--ntasks-per-node" || plain == "--gpus-per-node" ||
      plain == "--num-gpus") {
    Take(value, &launch->gpus_per_node, launch);
  } else if (plain == "--nnodes" || plain == "--nodes" || plain == "-N" || plain == "--num-nodes" ||
             plain == "--num-machines") {
    Take(value, &launch->nodes, launch);
  } else if (plain == "-n" || plain == "-np" || plain == "--ntasks" || plain == "--num-processes") {
    Take(value, &launch->gpus, launch);
  }
}

void ReadLauncher(const std::vector<Word>& words, Launch* launch) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::size_t equals = words[i].text.find('=');
    if (equals != std::string::npos) {
      ReadOption(words[i].text.substr(0, equals),
                 {.text = words[i].text.substr(equals + 1), .unknown = words[i].unknown}, launch);
    } else if (i + 1 < words.size()) {
      ReadOption(words[i].text, words[i + 1], launch);
    }
  }
}

}  // namespace

Result<CommandLine> FindTraining(const Script& script, const Table& table,
                                 const std::string& name) {
  const std::vector<Word>* best = nullptr;
  std::int64_t most = 0;
  for (const std::vector<Word>& command : script.commands) {
    if (Prints(command.front())) continue;
    const auto known = std::ranges::count_if(command, [&](const Word& word) {
      return word.text.starts_with("--") &&
             table.Find(word.text.substr(0, word.text.find('='))) != nullptr;
    });
    if (known > most) {
      most = known;
      best = &command;
    }
  }
  if (best == nullptr) {
    return InvalidInput(
        "{}: no command with arguments of a training framework; its variables may be what a loop "
        "or a command sets ({} commands were read)",
        name, script.commands.size());
  }
  const auto program = std::ranges::find_if(*best, [](const Word& word) {
    return word.text.ends_with(".py") || word.text.ends_with(".py\"");
  });
  const auto split = program == best->end() ? best->begin() : program;
  CommandLine line;
  for (const auto& [key, value] : script.directives) ReadOption("--" + key, value, &line.launch);
  if (line.launch.gpus > 0 && line.launch.nodes == 0) line.launch.gpus = 0;  // #SBATCH --gpus
  for (const std::vector<Word>& command : script.commands) {  // srun … bash -c "torchrun …"
    const std::string& first = command.front().text;
    if (first == "srun" || first == "sbatch" || first == "mpirun") {
      ReadLauncher({command.begin(), command.end()}, &line.launch);
    }
  }
  ReadLauncher({best->begin(), split}, &line.launch);
  if (program != best->end()) {
    line.program = program->text.substr(program->text.rfind('/') + 1);
  }
  line.words.assign(program == best->end() ? best->begin() : program + 1, best->end());
  return line;
}

}  // namespace orrery::recipes
