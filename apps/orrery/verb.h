// One verb of the command line, one file each; verbs.cc lists them.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "session.h"
#include "sniff.h"

namespace orrery::app {

class Verb {
 public:
  virtual ~Verb() = default;
  virtual std::string_view name() const = 0;
  virtual std::string_view description() const = 0;
  // Three commands, a line each, for the end of its help.
  virtual std::string_view examples() const = 0;
  virtual void Declare(CLI::App* app) = 0;
  virtual Status Run(Session* session) = 0;
  // The files that it was given, for the error of one that is of another kind.
  virtual std::vector<Reading> reads() const { return {}; }
};

std::unique_ptr<Verb> MakeSimulate();
std::unique_ptr<Verb> MakeImport();
std::unique_ptr<Verb> MakeList();
std::unique_ptr<Verb> MakeInspect();
std::unique_ptr<Verb> MakeDoctor();
std::unique_ptr<Verb> MakeSchema();
std::unique_ptr<Verb> MakeValidate();
std::unique_ptr<Verb> MakeConvert();
std::unique_ptr<Verb> MakeTraffic();
std::unique_ptr<Verb> MakeQueue();
std::unique_ptr<Verb> MakeSweep();
std::unique_ptr<Verb> MakeMerge();
std::unique_ptr<Verb> MakePlan();
std::unique_ptr<Verb> MakeCompare();
std::unique_ptr<Verb> MakeExplain();
std::unique_ptr<Verb> MakeTrace();
std::unique_ptr<Verb> MakeCalibrate();

std::vector<std::unique_ptr<Verb>> AllVerbs();

}  // namespace orrery::app
