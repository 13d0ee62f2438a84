// The files of the Hugging Face ecosystem on their way into one reading: DeepSpeed's JSON,
// Accelerate's YAML, arguments of the Trainer (TrainingArguments, TRL, LLaMA-Factory). Internal to
// huggingface*.cc and deepspeed.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "orrery/recipes/dialects.h"
#include "orrery/recipes/launch.h"
#include "orrery/recipes/reading.h"

namespace orrery::recipes {

struct Sources;

// A framework around the Trainer: its own arguments stand before the Trainer's, and most say the
// same by another name (the key of their rows).
struct Hub {
  std::string_view name;
  const Table& (*table)();
  bool (*knows)(std::string_view text, const std::string& path);
  // Adds what it takes when it is not said otherwise; `script`: null where there is none.
  void (*defaults)(const Script* script, Sources* sources, Reading* reading);
  void (*after)(Reading* reading) = nullptr;  // what its trainer does otherwise, behind the rules
};
const Hub& LlamaFactoryV1Hub();
const Hub& TrainerPythonHub();
const Hub& OpenRlhfHub();
const Hub& HyperPodHub();
// What a script or notebook hands to the calls that make its configuration.
Status AddTrainerPython(const File& file, Reading* reading);
// The one that knows a file; null: none does.
const Hub* FindHub(std::string_view text, const std::string& path);

// Which files spoke.
struct Sources {
  const Hub* hub = nullptr;
  bool deepspeed = false, accelerate = false, trainer = false, llama_factory = false;
  std::string model_file;
  std::int64_t host_threads = 0;  // of a rank; 0: not known
  Launch launch;
  // A script or notebook in Python, whose model may be loaded in fp32.
  bool python() const { return hub != nullptr && hub->name == "trainer-python"; }
};

// Rules of DeepSpeed's JSON. What it leaves "auto" the Trainer's rules have filled in before.
void ReadDeepSpeedRules(const Sources& sources, Reading* reading);
// The batch: sequences of a micro-batch and passes a step, as far as anything says; sizes the job.
struct Batch {
  std::optional<std::int64_t> micro, passes, all;
};
Batch DeepSpeedBatch(Reading* reading);
void SetBatch(const Sources& sources, const Batch& batch, Reading* reading);

void ReadTrainerRules(const Sources& sources, Reading* reading);

// Experts as a release of transformers runs them; where the draft has them and eager layers.
void ReadExpertModules(Reading* reading);
// What is not quantised in a quantised model, by framework and release.
void ReadPreparedBase(const Sources& sources, Reading* reading);

// Frozen weights in 4 and 8 bits, where the draft has adapters.
void ReadBaseQuantization(Reading* reading);
// An optimizer of bitsandbytes or torchao: its states are small, or fp32 beside any parameters;
// false: it is none of them.
bool SetSmallOptimizer(std::string_view name, Draft* draft);
bool IsOfBitsAndBytes(std::string_view name);

// Tokens a sequence, or asks for them.
void ReadLengths(const Sources& sources, Reading* reading);

}  // namespace orrery::recipes
