// Runs a list of instructions on several threads with one wake-up for the whole list.
//
// Threads take numbered pieces of an instruction; when all its pieces are done, they go on to the
// next. A thread that the system does not schedule holds up nobody unless it holds a piece.
#pragma once

#include <atomic>
#include <cstdint>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__linux__)
#include <pthread.h>
#endif

namespace firstlight {

inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// What tells the workers from a process's other threads in `top -H` and in /proc.
inline void name_worker([[maybe_unused]] std::thread& worker) {
#if defined(__linux__)
  pthread_setname_np(worker.native_handle(), "firstlight");
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

  explicit Team(int threads) : marks_(CAPACITY) { start(threads); }
  ~Team() { stop(); }

  // Starts workers, so that `threads` with the caller's own work, or as many as the system gives.
  void start(int threads) {
    wanted_ = threads;
    are_lost_ = false;
    try {
      while (size() < threads)
        name_worker(workers_.emplace_back([this, thread = size()] { serve(thread); }));
    } catch (const std::system_error&) {
    }
  }

  // Ends the workers; not during a run.
  void stop() {
    leaving_ = true;
    epoch_.store(++epochs_, std::memory_order_release);
    epoch_.notify_all();
    for (auto& worker : workers_) worker.join();
    workers_.clear();
    leaving_ = false;
  }

  // In a forked process, which has no threads but the one that forked: the next run starts workers
  // anew. What stood for the old ones cannot be joined, so it is left behind.
  void forget() {
    new std::vector<std::thread>(std::move(workers_));
    workers_.clear();
    are_lost_ = true;
  }

  int size() const { return int(workers_.size()) + 1; }

  // Returns when all is done; one caller at a time.
  void run(const Job& job) {
    if (are_lost_) start(wanted_);
    std::uint32_t epoch = ++epochs_;
    std::uint32_t pieces = 0;
    for (int i = 0; i < job.size(); ++i) {
      // First nothing can be taken, or a late thread could pair the old number with the new pieces.
      marks_[i].taken.store(std::uint64_t(epoch) << 32 | NOTHING);
      marks_[i].pieces.store(job.pieces(i), std::memory_order_release);
      marks_[i].done.store(0, std::memory_order_release);
      marks_[i].taken.store(std::uint64_t(epoch) << 32, std::memory_order_release);
      pieces += job.pieces(i);
    }
    size_.store(job.size());
    job_.store(&job);
    // Waking a thread takes longer than a few pieces.
    if (pieces > FEW_PIECES) {
      epoch_.store(epoch, std::memory_order_release);
      if (!workers_.empty()) epoch_.notify_all();
    }
    follow(job, epoch, 0);
    job_.store(nullptr);
  }

 private:
  static constexpr std::uint32_t FEW_PIECES = 2;
  static constexpr std::uint32_t NOTHING = 0xffffffffu;

  // A thread that comes late may look at marks of a run that has ended, so they are the team's own;
  // it looks at a job only while it holds a piece, and then the run has not ended.
  struct alignas(64) Mark {
    std::atomic<std::uint64_t> taken{0};  // epoch << 32 | next piece
    std::atomic<std::uint32_t> done{0};
    std::atomic<std::uint32_t> pieces{0};
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
    for (int i = 0; i < size_.load(std::memory_order_relaxed); ++i) {
      Mark& mark = marks_[i];
      std::uint32_t pieces = mark.pieces.load(std::memory_order_acquire), piece = 0;
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
      const Job* job = job_.load();
      if (job != nullptr && !leaving_) follow(*job, seen, thread);
    }
  }

  std::vector<Mark> marks_;
  std::vector<std::thread> workers_;
  std::atomic<const Job*> job_{nullptr};
  std::atomic<int> size_{0};  // instructions of the job
  std::atomic<std::uint32_t> epoch_{0};
  std::atomic<bool> leaving_{false};
  std::uint32_t epochs_ = 0;
  int wanted_ = 1;
  bool are_lost_ = false;
};

}  // namespace firstlight
