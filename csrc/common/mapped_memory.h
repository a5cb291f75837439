// Zeroed memory straight from the system: page-aligned, committed when first touched, huge pages where that pays.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <utility>

namespace octavo {

class MappedMemory {
 public:
  MappedMemory() = default;
  explicit MappedMemory(std::size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<std::byte*>(memory);
    if (bytes >= kHugePage) madvise(data_, bytes, MADV_HUGEPAGE);
  }
  ~MappedMemory() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  MappedMemory(MappedMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  MappedMemory& operator=(MappedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace octavo
