#include "orrery/recipes/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace orrery::recipes {
namespace {

bool Prints(const Word& word) {
  return word.text == "echo" || word.text == "printf" || word.text == "cat";
}

bool IsFalse(std::string_view text) { return text == "False" || text == "false"; }
bool IsTruth(std::string_view text) { return IsFalse(text) || text == "True" || text == "true"; }

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
  if (plain == "--nproc-per-node" && (value.text == "gpu" || value.text == "auto")) {
    launch->whole_hosts = true;
  } else if (plain == "--nproc-per-node" || plain == "--ntasks-per-node" ||
             plain == "--gpus-per-node" || plain == "--num-gpus") {
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

Result<CommandLine> FindTraining(const Script& script, const Tables& tables,
                                 const std::string& name) {
  const std::vector<Word>* best = nullptr;
  std::int64_t most = 0;
  for (const std::vector<Word>& command : script.commands) {
    if (Prints(command.front())) continue;
    const auto known = std::ranges::count_if(command, [&](const Word& word) {
      return word.text.starts_with("--") &&
             FindRow(tables, word.text.substr(0, word.text.find('='))) != nullptr;
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
  return CommandOf(script, *best);
}

namespace {

std::string_view FileName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// DeepSpeed's launcher: --include says hosts and their GPUs ("worker-0@worker-1:0,2", all of those
// without), and without a file of hosts it starts those of this one (deepspeed/launcher/runner.py).
void ReadDeepSpeedLauncher(const std::vector<Word>& words, Launch* launch) {
  bool hosts = false;
  std::string include;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& text = words[i].text;
    const std::size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    const bool next = equals == std::string::npos && i + 1 < words.size();
    const std::string value = next ? words[i + 1].text : text.substr(equals + 1);
    hosts = hosts || name == "--hostfile" || name == "-H";
    if (name == "--include" || name == "-i") include = value;
  }
  if (!include.empty() && launch->gpus_per_node == 0) {
    std::int64_t nodes = 1;
    for (const char c : include) nodes += c == '@' ? 1 : 0;
    const std::string first = include.substr(0, include.find('@'));
    const std::size_t colon = first.find(':');
    launch->nodes = nodes;
    launch->whole_hosts = colon == std::string::npos;
    if (colon != std::string::npos) {
      launch->gpus_per_node =
          1 + std::count(first.begin() + static_cast<std::ptrdiff_t>(colon), first.end(), ',');
    }
    return;
  }
  if (hosts || launch->nodes > 0 || launch->gpus > 0 || !launch->unknown.empty()) return;
  launch->nodes = 1;
  if (launch->gpus_per_node == 0) launch->whole_hosts = true;
}

// What is started without a launcher is one process, on the one GPU that it sees.
void ReadVisible(const Script& script, Launch* launch) {
  const auto visible = script.exported.find("CUDA_VISIBLE_DEVICES");
  if (visible == script.exported.end() || !visible->second.unknown.empty()) return;
  const std::string& text = visible->second.text;
  if (!text.empty() && text.find(',') == std::string::npos) launch->gpus = 1;
}

}  // namespace

CommandLine CommandOf(const Script& script, const std::vector<Word>& all) {
  // What a launcher of jobs is handed behind "--" is the command (open-instruct's mason.py).
  std::vector<Word> command = all;
  const auto wrapped = std::ranges::find(command, "--", &Word::text);
  constexpr std::string_view kStarts[] = {"accelerate", "python", "python3", "torchrun",
                                          "deepspeed"};
  std::int64_t nodes = 0, each = 0;
  if (wrapped != command.end() && wrapped + 1 != command.end() &&
      std::ranges::find(kStarts, (wrapped + 1)->text) != std::end(kStarts)) {
    Launch outer;
    for (auto word = command.begin(); word + 1 < wrapped; ++word) {
      if (word->text == "--num_nodes") Take(*(word + 1), &nodes, &outer);
      if (word->text == "--gpus") Take(*(word + 1), &each, &outer);
    }
    command.erase(command.begin(), wrapped + 1);
  }
  auto program = std::ranges::find_if(command, [](const Word& word) {
    return word.text.ends_with(".py") || word.text.ends_with(".py\"");
  });
  for (auto word = command.begin(); program == command.end() && word + 1 < command.end(); ++word) {
    const bool module = word->text == "-m" || word->text == "--module";
    if (module && !(word + 1)->text.starts_with("torch.distributed")) program = word + 1;
    if (program != command.end()) break;
  }
  const auto split = program == command.end() ? command.begin() : program;
  CommandLine line;
  for (const auto& [key, value] : script.directives) ReadOption("--" + key, value, &line.launch);
  if (line.launch.gpus > 0 && line.launch.nodes == 0) line.launch.gpus = 0;  // #SBATCH --gpus
  for (const std::vector<Word>& other : script.commands) {  // srun … bash -c "torchrun …"
    const std::string& first = other.front().text;
    if (first == "srun" || first == "sbatch" || first == "mpirun")
      ReadLauncher(other, &line.launch);
  }
  line.launcher.assign(command.begin(), split);
  // Programs that launch by themselves take a launcher's options among their own.
  const std::string& own = command.front().text;
  const bool launches = program == command.end() && (own == "tune" || own == "automodel");
  ReadLauncher(launches ? command : line.launcher, &line.launch);
  if (launches && line.launch.nodes == 0 && line.launch.unknown.empty()) line.launch.nodes = 1;
  if (nodes > 0 && each > 0) {
    line.launch.nodes = nodes;
    line.launch.gpus_per_node = each;
    line.launch.gpus = 0;
  }
  const bool starts = std::ranges::any_of(
      line.launcher, [](const Word& word) { return FileName(word.text) == "deepspeed"; });
  if (starts) ReadDeepSpeedLauncher(line.launcher, &line.launch);
  const bool torchrun = std::ranges::any_of(line.launcher, [](const Word& word) {
    return word.text.ends_with("torchrun") || word.text == "torch.distributed.run" ||
           word.text == "torch.distributed.launch";
  });
  if (torchrun && line.launch.nodes == 0 && line.launch.unknown.empty()) {
    line.launch.nodes = 1;  // its default
  }
  const Launch& launch = line.launch;
  const bool alone = !torchrun && !starts && launch.gpus == 0 && launch.nodes == 0 &&
                     launch.gpus_per_node == 0 && launch.unknown.empty() &&
                     FileName(own).starts_with("python");
  if (alone) ReadVisible(script, &line.launch);
  if (program != command.end()) {
    line.program = program->text.substr(program->text.rfind('/') + 1);
  }
  line.words.assign(program == command.end() ? command.begin() : program + 1, command.end());
  return line;
}

void AddWords(const std::vector<Word>& words, const Tables& tables, Reading* reading) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const Word& word = words[i];
    const std::string where = fmt::format("{}:{}", reading->file(), word.line);
    if (!word.text.starts_with("--")) continue;  // a stray value; the parser would refuse it
    const std::size_t equals = word.text.find('=');
    const std::string name = word.text.substr(0, equals);
    const Row* row = FindRow(tables, name);
    Given given{.name = name, .row = row, .where = where};
    if (equals != std::string::npos) {
      given.values.push_back({.text = word.text.substr(equals + 1), .unknown = word.unknown});
    }
    const bool flag = row != nullptr && row->flag();
    const bool many = row == nullptr || row->takes == "n" || row->takes == "3";
    const std::size_t most = many ? words.size() : flag ? 0 : 1;
    while (given.values.size() < most && i + 1 < words.size() &&
           !words[i + 1].text.starts_with("--")) {
      given.values.push_back(words[++i]);
    }
    if (flag && i + 1 < words.size() && IsTruth(words[i + 1].text)) given.values = {words[++i]};
    if (flag && !given.values.empty()) given.on = !IsFalse(given.values[0].text);
    if (row == nullptr) {
      reading->AddUnknown(name, where, tables);
    } else if (!flag && given.values.empty() && row->takes == "1" &&
               row->effect != Effect::kInert) {
      reading->Problem(fmt::format("{}: {} has no value", where, name));
    } else {
      reading->Add(std::move(given));
    }
  }
}

}  // namespace orrery::recipes
