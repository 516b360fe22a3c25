// A team with the memory of its threads, and all machines of the process, for forks.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "codes.h"
#include "threads.h"

namespace firstlight {

struct Machine {
  explicit Machine(int threads) : scratch(threads), team(threads) {}

  void run(const Job& job) {
    team.run(job);
  }

  void resize(int threads) {
    std::lock_guard<std::mutex> lock(one_caller);
    team.stop();
    scratch.resize(threads);
    team.start(threads);
  }

  std::vector<Scratch> scratch;  // one per thread
  std::mutex one_caller;
  Team team;
};

// A fork waits until no program runs, so that the child finds every machine at rest.
class Machines {
 public:
  // Never destroyed: a thread may still run a program while the process ends.
  static Machines& all() {
    static Machines* one = new Machines;
    return *one;
  }

  Machine* open(int threads) {
    auto* machine = new Machine(threads);
    std::lock_guard<std::mutex> lock(mutex_);
    machines_.push_back(machine);
    return machine;
  }

  void close(Machine* machine) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      machines_.erase(std::find(machines_.begin(), machines_.end(), machine));
    }
    delete machine;
  }

 private:
  Machines() {
    pthread_atfork([] { all().hold(); }, [] { all().release(false); }, [] { all().release(true); });
  }

  void hold() {
    mutex_.lock();
    for (Machine* machine : machines_) machine->one_caller.lock();
  }

  void release(bool in_child) {
    for (Machine* machine : machines_) {
      if (in_child) machine->team.forget();
      machine->one_caller.unlock();
    }
    mutex_.unlock();
  }

  std::mutex mutex_;
  std::vector<Machine*> machines_;
};

}  // namespace firstlight
