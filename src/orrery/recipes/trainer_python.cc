// Python scripts and notebooks around Hugging Face's Trainer, TRL and Unsloth, read without running
// them: the calls that make a configuration (SFTConfig, TrainingArguments, LoraConfig,
// BitsAndBytesConfig, from_pretrained, get_peft_model, SFTTrainer), wherever they stand, with names
// that the file sets outside of functions. A keyword of SFTConfig and its kin is the Trainer's
// argument of that name; those of the others stand in data/recipes/trainer_python.csv. What a call
// takes from elsewhere (a parser, another file) is asked for where it matters. Source:
// huggingface/transformers training_args.py, utils/quantization_config.py; huggingface/peft
// tuners/lora/config.py; huggingface/trl trainer/sft_config.py; unslothai/unsloth models/llama.py,
// models/loader.py.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "orrery/base/text.h"
#include "orrery/formats/tree.h"
#include "orrery/recipes/huggingface.h"
#include "orrery/recipes/python_document.h"
#include "orrery/recipes/python_file.h"

namespace orrery::recipes {
namespace {

using Kind = PythonValue::Kind;

// A callee, and the section that its keywords are known by; empty: they are the Trainer's.
struct Maker {
  std::string_view callee, section;
};
constexpr std::array<Maker, 9> kMakers = {{
    {"SFTConfig", ""},
    {"TrainingArguments", ""},
    {"Seq2SeqTrainingArguments", ""},
    {"UnslothTrainingArguments", ""},
    {"LoraConfig", "LoraConfig"},
    {"BitsAndBytesConfig", "BitsAndBytesConfig"},
    {"from_pretrained", "from_pretrained"},
    {"get_peft_model", "get_peft_model"},
    {"SFTTrainer", "SFTTrainer"},
}};
// Those that train in a way that is not modelled.
constexpr std::array<std::string_view, 8> kOthers = {"DPOConfig(",  "GRPOConfig(", "PPOConfig(",
                                                     "ORPOConfig(", "KTOConfig(",  "RewardConfig(",
                                                     "RLOOConfig(", "CPOConfig("};

bool IsWordLetter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// Behind the call's closing bracket; npos: it has none.
std::size_t EndOfCall(std::string_view text, std::size_t open) {
  int depth = 0;
  for (std::size_t at = open; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
      continue;
    }
    if (c == '"' || c == '\'') {
      const std::string quote(text.substr(at).starts_with(std::string(3, c)) ? 3 : 1, c);
      const std::size_t end = text.find(quote, at + quote.size());
      if (end == std::string_view::npos) return end;
      at = end + quote.size() - 1;
      continue;
    }
    if (c == '(' || c == '[' || c == '{') ++depth;
    if ((c == ')' || c == ']' || c == '}') && --depth == 0) return at + 1;
  }
  return std::string_view::npos;
}

struct FoundCall {
  std::string section, text;  // the text from its bracket on
  std::int32_t line = 0;
};

// In the file's order; calls inside of calls, too.
std::vector<FoundCall> FindCalls(std::string_view text) {
  std::vector<FoundCall> found;
  constexpr std::size_t kMostCalls = 64;
  for (std::size_t at = 0; at < text.size() && found.size() < kMostCalls; ++at) {
    if (text[at] != '(' || at == 0) continue;
    std::size_t from = at;
    while (from > 0 && IsWordLetter(text[from - 1])) --from;
    const std::string_view callee = text.substr(from, at - from);
    const auto maker = std::ranges::find(kMakers, callee, &Maker::callee);
    const bool definition = from >= 4 && text.substr(from - 4, 4) == "def ";
    const bool tokenizer =
        callee == "from_pretrained" && from > 0 &&
        Contains(text.substr(from > 60 ? from - 60 : 0, from > 60 ? 60 : from), "Tokenizer.");
    if (maker == kMakers.end() || definition || tokenizer) continue;
    const std::size_t line_start = text.rfind('\n', from) + 1;
    const std::string_view before = text.substr(line_start, from - line_start);
    if (before.find('#') != std::string_view::npos) continue;
    const std::size_t end = EndOfCall(text, at);
    if (end == std::string_view::npos) continue;
    found.push_back(
        {.section = std::string(maker->section),
         .text = std::string(text.substr(at, end - at)),
         .line = static_cast<std::int32_t>(
             1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'))});
  }
  return found;
}

// "torch.bfloat16" is its last word; a name that the file does not set stays unknown.
std::string TextOfValue(const PythonValue& value) {
  if (value.kind == Kind::kUnknown && value.text.starts_with("torch.")) return value.text;
  return value.kind == Kind::kUnknown ? "" : value.text;
}

class PythonArguments {
 public:
  PythonArguments(const File& file, Reading* reading) : file_(file), reading_(reading) {}

  Status Add(const std::string& text) {
    const std::vector<FoundCall> calls = FindCalls(text);
    // Each call becomes a value of the file's own, so that names it sets are known.
    std::string all = text;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      all += fmt::format("\nfound_call_{} = made{}\n", i, calls[i].text);
    }
    ORRERY_ASSIGN_OR_RETURN(const PythonFile python, ReadPython(all, file_.path));
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const PythonValue* value = python.values.Find(fmt::format("found_call_{}", i));
      if (value != nullptr && value->kind == Kind::kCall) AddCall(calls[i], *value);
    }
    return {};
  }

 private:
  void AddCall(const FoundCall& call, const PythonValue& value) {
    if (call.section == "from_pretrained" && !value.items.empty()) {
      AddOne(call, "from_pretrained.pretrained_model_name_or_path", value.items.front());
    }
    for (const auto& [key, field] : value.fields) {
      AddOne(call, call.section.empty() ? "--" + key : call.section + "." + key, field);
    }
    if (call.section == "LoraConfig" || call.section == "get_peft_model") {
      AddText(call, "--use_peft", call.section, "true");
    }
  }

  void AddOne(const FoundCall& call, const std::string& name, const PythonValue& value) {
    const Tables tables = {&TrainerPythonTable(), &TrainerTable()};
    const Row* row = FindRow(tables, name);
    if (row == nullptr && value.kind == Kind::kMap) {  // dataset_kwargs={…}
      if (FindRow(tables, name.substr(2) + ".x") != nullptr) return;
    }
    const std::string where = fmt::format("{}:{}", file_.path, call.line);
    if (row == nullptr) {
      // Keywords of other classes' from_pretrained and get_peft_model.
      if (call.section.empty()) reading_->AddUnknown(name, where, tables);
      return;
    }
    const bool said =
        reading_->Has(row->argument) || (row->key.starts_with("--") && reading_->Has(row->key));
    if (value.kind == Kind::kNone || (said && !row->many())) return;
    if (name.starts_with("from_pretrained.") && name.ends_with("dtype") &&
        TextOfValue(value).empty()) {
      return;  // as the checkpoint has it
    }
    Given given{.name = name, .row = row, .where = where};
    const auto word = [&](const PythonValue& one) {
      Word out{.text = TextOfValue(one), .line = call.line};
      if (out.text.empty() && one.kind == Kind::kUnknown && row->effect != Effect::kInert) {
        out.unknown = one.text.empty() ? name.substr(name.find_last_of("-.") + 1) : one.text;
      }
      return out;
    };
    if (value.kind == Kind::kList) {
      for (const PythonValue& item : value.items) given.values.push_back(word(item));
    } else {
      given.values.push_back(word(value));
    }
    if (row->flag()) {
      // A condition on the card ("not is_bfloat16_supported()") is taken as a new one decides it.
      const bool bf16 = name == "--bf16" && value.kind == Kind::kUnknown;
      const bool fp16 = name == "--fp16" && value.kind == Kind::kUnknown;
      given.on =
          bf16 || (value.kind == Kind::kBool ? value.text == "True"
                                             : !fp16 && value.kind == Kind::kText &&
                                                   !value.text.empty() && value.text != "False");
      given.values.clear();
      if (!given.on) return;
    }
    reading_->Add(std::move(given));
  }

  void AddText(const FoundCall& call, std::string_view argument, const std::string& name,
               std::string value) {
    if (!reading_->Has(argument)) {
      reading_->AddAs(argument, name, std::move(value),
                      fmt::format("{}:{}", file_.path, call.line));
    }
  }

  const File& file_;
  Reading* reading_;
};

// The cells of a notebook of marimo, functions of a file of Python, as if they stood in no
// function; the numbers of its lines stay.
std::string CellsOfMarimo(std::string_view text) {
  constexpr std::string_view kIndent = "    ";
  enum class In : std::uint8_t { kElsewhere, kSignature, kBody, kReturn };
  In in = In::kElsewhere;
  std::string code;
  while (!text.empty()) {
    const std::string_view line = TakeLine(&text);
    if (line.starts_with("def ")) in = In::kSignature;
    if (in == In::kSignature) {
      if (line.ends_with(":")) in = In::kBody;
    } else if (in != In::kElsewhere && !line.empty() && line.front() == '@') {
      in = In::kElsewhere;
    } else if (in == In::kBody) {
      const bool inside = line.starts_with(kIndent);
      const std::string_view rest = inside ? line.substr(kIndent.size()) : line;
      if (inside && rest.starts_with("return")) in = In::kReturn;
      if (in == In::kBody) code += rest;
    }
    code += '\n';
  }
  return code;
}

// The cells of a notebook that hold code, commands of the shell and of the notebook left out.
Result<std::string> CodeOf(const File& file) {
  if (!file.path.ends_with(".ipynb")) {
    return Contains(file.text, "\n@app.cell") ? CellsOfMarimo(file.text) : file.text;
  }
  ORRERY_ASSIGN_OR_RETURN(const formats::Document document,
                          formats::ParseJson(file.text, file.path));
  std::string code;
  const formats::Node* cells = document.root.Find("cells");
  if (cells == nullptr) return InvalidInput("{}: a notebook without cells", Printable(file.path));
  for (const formats::Node& cell : cells->items) {
    const formats::Node* kind = cell.Find("cell_type");
    const formats::Node* source = cell.Find("source");
    if (kind == nullptr || source == nullptr || kind->text != "code") continue;
    std::string text = source->text;
    for (const formats::Node& line : source->items) text += line.text;
    for (std::string_view rest = text; !rest.empty();) {
      const std::string_view line = TakeLine(&rest);
      const bool command = line.starts_with('!') || line.starts_with('%');
      if (!command) code += line;
      code += '\n';
    }
  }
  return code;
}

void TrainerPythonDefaults(const Script*, Sources* sources, Reading* r) {
  const auto add = [&](std::string_view argument, std::string_view name, std::string value) {
    if (!r->Has(argument)) r->AddAs(argument, std::string(name), std::move(value), r->file());
  };
  const bool unsloth = r->Has("from_pretrained.max_seq_length");
  r->Find("from_pretrained.max_seq_length");
  if (r->On("--use_peft") && !r->Has("--lora_target_modules")) {
    add("--lora_target_modules", "LoraConfig.target_modules", "all-linear");
    r->draft().Assume("adapters beside all linear layers: the script names none");
  }
  if (!unsloth) return;
  if (!r->Has("--max_length")) {
    r->AddAs("--max_length", "from_pretrained.max_seq_length",
             r->Text("from_pretrained.max_seq_length"), r->Where("from_pretrained.max_seq_length"));
  }
  const std::string recompute = r->Has("get_peft_model.use_gradient_checkpointing")
                                    ? Lower(r->Text("get_peft_model.use_gradient_checkpointing"))
                                    : "unsloth";
  if (recompute != "false") add("--gradient_checkpointing", "use_gradient_checkpointing", "true");
  if (recompute == "unsloth") {
    add("--activation_offloading", "use_gradient_checkpointing", "true");
  }
  if (!r->Has("from_pretrained.load_in_4bit") && !r->Has("--load_in_4bit") &&
      !r->Has("from_pretrained.full_finetuning")) {
    add("--load_in_4bit", "from_pretrained.load_in_4bit", "true");  // its default
  }
  if (r->On("--load_in_4bit")) add("--use_bnb_nested_quant", "load_in_4bit", "true");
  if (!r->Has("--bf16") && !r->Has("--fp16")) add("--bf16", "SFTConfig", "true");
  add("--use_liger_kernel", "unsloth", "true");
  r->draft().Assume("Unsloth's kernels are priced as Liger's");
  if (r->options().gpus == 0 && r->options().nodes == 0 && sources->launch.gpus == 0) {
    sources->launch.gpus = 1;
  }
}

}  // namespace

Status AddTrainerPython(const File& file, Reading* reading) {
  for (const std::string_view other : kOthers) {
    if (!Contains(file.text, other)) continue;
    return InvalidInput(
        "'{}': {}: training by preferences or rewards is not modelled; supervised training "
        "(SFTConfig) is",
        Printable(file.path), other.substr(0, other.size() - 1));
  }
  ORRERY_ASSIGN_OR_RETURN(const std::string code, CodeOf(file));
  return PythonArguments(file, reading).Add(code);
}

const Table& TrainerPythonTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_trainer_python.inc"
  };
  static const Table table(kLines);
  return table;
}

bool IsTrainerPython(std::string_view text, const std::string& path) {
  if (!path.ends_with(".py") && !path.ends_with(".ipynb")) return false;
  const auto calls = [&](std::string_view callee) { return Contains(text, callee); };
  return calls("SFTConfig(") || calls("TrainingArguments(") || calls("SFTTrainer(") ||
         std::ranges::any_of(kOthers, calls);  // refused by name
}

const Hub& TrainerPythonHub() {
  static constexpr Hub kHub = {"trainer-python", TrainerPythonTable, IsTrainerPython,
                               TrainerPythonDefaults};
  return kHub;
}

}  // namespace orrery::recipes
