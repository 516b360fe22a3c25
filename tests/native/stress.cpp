// Runs programs on teams that are resized, opened, closed and forked; built with a sanitizer by
// test_sanitizers.py. Exits with 1 if a sum is wrong.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "library.cpp"

namespace {

constexpr int ROWS = 70, WIDTH = 33;

// `count` instructions that each add one to what the one before wrote.
struct Chain {
  std::vector<float> one, x;
  std::vector<Instruction> instructions;

  explicit Chain(int count) : one(ROWS * WIDTH, 1.0f), x(ROWS * WIDTH, 0.0f) {
    Instruction add{};
    add.op = Op::ADD;
    for (int i : {2, 3, 4, 1}) add.n[i] = WIDTH;
    add.n[0] = ROWS;
    add.p[0] = add.p[2] = x.data();
    add.p[1] = one.data();
    instructions.assign(count, add);
    fl_prepare(instructions.data(), count);
  }

  void run(void* machine, int times) {
    for (int t = 0; t < times; ++t) fl_run(machine, instructions.data(), int(instructions.size()));
    for (float found : x)
      if (found != float(times) * float(instructions.size())) {
        std::fprintf(stderr, "found %g\n", found);
        std::_Exit(1);
      }
  }
};

void callers_take_turns(int threads) {
  void* machine = fl_open(threads);
  std::vector<std::thread> callers;
  for (int c = 0; c < 3; ++c) callers.emplace_back([=] { Chain(50).run(machine, 100); });
  for (int size : {1, 3, 2, 4}) fl_resize(machine, size);
  for (auto& caller : callers) caller.join();
  fl_close(machine);
}

void a_child_goes_on(int times) {
  void* machine = fl_open(3);
  for (int i = 0; i < times; ++i) {
    Chain(20).run(machine, 5);
    pid_t child = fork();
    if (child == 0) {
      Chain(20).run(machine, 5);
      std::_Exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) std::_Exit(1);
  }
  fl_close(machine);
}

}  // namespace

int main(int argc, char** argv) {
  for (int threads : {1, 2, 4}) callers_take_turns(threads);
  for (int i = 0; i < 50; ++i) {
    void* machine = fl_open(3);
    if (i % 2) Chain(3).run(machine, 2);
    fl_close(machine);
  }
  if (argc > 1) a_child_goes_on(10);
  std::puts("good");
}
