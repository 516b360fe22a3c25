// Runs a list of instructions on several threads with one wake-up for the whole list.
//
// Threads take numbered pieces of an instruction; when all its pieces are done, they go on to the
// next. A thread that the system does not schedule holds up nobody unless it holds a piece.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace firstlight {

inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins for some microseconds, then lets others have the core.
class Patience {
 public:
  void wait() {
    if (++spins_ < 2000) relax();
    else std::this_thread::yield();
  }

 private:
  int spins_ = 0;
};

// What a team works on: `pieces(i)` of instruction i of n, each computed by `work(i, piece, thread)`.
class Job {
 public:
  virtual ~Job() = default;
  virtual int size() const = 0;
  virtual std::uint32_t pieces(int instruction) const = 0;
  virtual void work(int instruction, std::uint32_t piece, int thread) const = 0;
};

class Team {
 public:
  static constexpr int CAPACITY = 1 << 14;  // instructions of a job

  explicit Team(int threads) : marks_(CAPACITY) {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { serve(i); });
  }

  ~Team() {
    leaving_ = true;
    epoch_.fetch_add(2);
    epoch_.notify_all();
    for (auto& worker : workers_) worker.join();
  }

  int size() const { return int(workers_.size()) + 1; }

  // Returns when all is done; one caller at a time.
  void run(const Job& job) {
    std::uint32_t epoch = ++epochs_;
    for (int i = 0; i < job.size(); ++i) {
      marks_[i].taken.store(std::uint64_t(epoch) << 32, std::memory_order_relaxed);
      marks_[i].done.store(0, std::memory_order_relaxed);
    }
    job_.store(&job);
    epoch_.store(epoch, std::memory_order_release);
    if (!workers_.empty()) epoch_.notify_all();
    follow(job, epoch, 0);
    job_.store(nullptr);
  }

  // Waits until no worker looks at a job that ended, so that the job may be freed.
  void settle() const {
    Patience patience;
    while (inside_.load() != 0) patience.wait();
  }

 private:
  struct alignas(64) Mark {
    std::atomic<std::uint64_t> taken{0};  // epoch << 32 | next piece
    std::atomic<std::uint32_t> done{0};
  };

  // Takes the next piece; false if none is left. `over` is set when the run has ended.
  bool take(Mark& mark, std::uint32_t epoch, std::uint32_t pieces, std::uint32_t& piece,
            bool& over) {
    std::uint64_t seen = mark.taken.load(std::memory_order_acquire);
    for (;;) {
      if (std::uint32_t(seen >> 32) != epoch) return over = true, false;
      piece = std::uint32_t(seen);
      if (piece >= pieces) return false;
      if (mark.taken.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel)) return true;
    }
  }

  void follow(const Job& job, std::uint32_t epoch, int thread) {
    for (int i = 0, n = job.size(); i < n; ++i) {
      Mark& mark = marks_[i];
      std::uint32_t pieces = job.pieces(i), piece = 0;
      bool over = false;
      while (take(mark, epoch, pieces, piece, over)) {
        job.work(i, piece, thread);
        mark.done.fetch_add(1, std::memory_order_acq_rel);
      }
      if (over) return;
      Patience patience;
      while (mark.done.load(std::memory_order_acquire) < pieces) {
        if (std::uint32_t(mark.taken.load(std::memory_order_relaxed) >> 32) != epoch) return;
        patience.wait();
      }
    }
  }

  void serve(int thread) {
    std::uint32_t seen = 0;
    while (!leaving_) {
      std::uint32_t now = epoch_.load(std::memory_order_acquire);
      for (int spins = 0; now == seen && spins < 4000; ++spins) {
        relax();
        now = epoch_.load(std::memory_order_acquire);
      }
      if (now == seen) epoch_.wait(seen);
      seen = epoch_.load(std::memory_order_acquire);
      inside_.fetch_add(1);
      const Job* job = job_.load();
      if (job != nullptr && !leaving_) follow(*job, seen, thread);
      inside_.fetch_sub(1);
    }
  }

  std::vector<Mark> marks_;
  std::vector<std::thread> workers_;
  std::atomic<const Job*> job_{nullptr};
  std::atomic<std::uint32_t> epoch_{0};
  std::atomic<int> inside_{0};
  std::atomic<bool> leaving_{false};
  std::uint32_t epochs_ = 0;
};

}  // namespace firstlight
