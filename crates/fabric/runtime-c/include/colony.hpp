// SPDX-License-Identifier: MIT OR Apache-2.0
//
// colony.hpp: classes of C++17 as classes of colony.h, with typed messages. Header only.
//
//     struct Hop { std::int64_t left; };
//
//     class Member : public colony::Object<Member, Hop> {   // the message types are its entry methods
//     public:
//         static constexpr const char *name = "Member";
//         using Init = std::int64_t;
//         Member(const Init &init, colony::Context &context);
//         void call(const Hop &hop, colony::Context &context);
//     };
//
//     colony::Program program;
//     program.add<Member>();
//     return program.run(argc, argv, [](int, char **, colony::Context &context) { ... });
//
// Messages and Init are trivially copyable. A class that is trivially copyable itself migrates as its bytes. Other classes have
// `void pack(colony::Buffer &) const` and a constructor from `colony::Reader &`. Optional members: `arrived(Context &)`,
// `resume(Context &)`, `reduced(const colony_reduction &, Context &)`, `quiet(Context &)`, `stateBytes() const`.
// An exception that leaves a member ends the job with its text.

#ifndef COLONY_HPP
#define COLONY_HPP

#include <colony.h>

#include <cstring>
#include <exception>
#include <initializer_list>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace colony {

/// A call that was refused.
class Error : public std::runtime_error {
public:
    explicit Error(int code) : std::runtime_error(colony_last_error()), code(code) {}
    int code;
};

inline int check(int code) {
    if (code < 0) throw Error(code);
    return code;
}

/// Bytes that an object is packed into.
class Buffer {
public:
    explicit Buffer(colony_buffer *buffer) : buffer_(buffer) {}
    template <class T> void write(const T &value) {
        static_assert(std::is_trivially_copyable_v<T>, "only trivially copyable values are written as their bytes");
        write(&value, 1);
    }
    template <class T> void write(const T *values, std::size_t count) {
        static_assert(std::is_trivially_copyable_v<T>, "only trivially copyable values are written as their bytes");
        check(colony_buffer_write(buffer_, values, count * sizeof(T)));
    }

private:
    colony_buffer *buffer_;
};

/// Bytes that an object is unpacked from.
class Reader {
public:
    Reader(const void *bytes, std::size_t length) : next_(static_cast<const char *>(bytes)), left_(length) {}
    template <class T> T read() {
        T value;
        read(&value, 1);
        return value;
    }
    template <class T> void read(T *values, std::size_t count) {
        static_assert(std::is_trivially_copyable_v<T>, "only trivially copyable values are read from their bytes");
        if (count > left_ / sizeof(T)) throw std::length_error("a packed object is too short");
        if (count > 0) std::memcpy(values, next_, count * sizeof(T));
        next_ += count * sizeof(T);
        left_ -= count * sizeof(T);
    }
    std::size_t left() const { return left_; }

private:
    const char *next_;
    std::size_t left_;
};

template <class T> class Element;

/// An array of objects of class T. It is a name: copy it, send it in messages.
template <class T> class Array {
public:
    Array() = default;
    explicit Array(colony_array raw) : raw(raw) {}
    template <class... Coordinates> Element<T> at(Coordinates... coordinates) const {
        return Element<T>(colony_element{raw, {{static_cast<std::int64_t>(coordinates)...}}});
    }
    colony_array raw{};
};

/// An element of an array, wherever it is.
template <class T> class Element {
public:
    Element() = default;
    explicit Element(colony_element raw) : raw(raw) {}
    Array<T> array() const { return Array<T>(raw.array); }
    std::int64_t index(int dimension = 0) const { return raw.index.at[dimension]; }
    colony_element raw{};
};

template <class T> colony_target to(Element<T> element) { return colony_to_element(element.raw); }
template <class T> colony_target to(Array<T> array) { return colony_to_array(array.raw); }

namespace detail {

/// The number of class T in its program.
template <class T> inline std::int32_t number = -1;

/// The place of a type in a list.
template <class M, class First, class... Rest> constexpr std::uint32_t place() {
    if constexpr (std::is_same_v<M, First>) {
        return 0;
    } else {
        static_assert(sizeof...(Rest) > 0, "the class has no entry method for this message");
        return 1 + place<M, Rest...>();
    }
}

template <class M> constexpr void check_message() {
    static_assert(std::is_trivially_copyable_v<M>, "messages are trivially copyable");
    static_assert(alignof(M) <= 16, "messages are aligned to at most 16 bytes");
}

} // namespace detail

/// The functions that a callback can call. A context is valid until its callback returns.
class Context {
public:
    explicit Context(colony_context *raw) : raw(raw) {}

    int pe() const { return check(colony_pe(raw)); }
    int pes() const { return check(colony_pes(raw)); }
    double load() const { return colony_load(raw); }
    void exit(int code) { check(colony_exit(raw, code)); }
    [[noreturn]] void fail(const std::string &text) { throw std::runtime_error(text); }

    /// Creates an array; the extents are those of 1 to 6 dimensions.
    template <class T>
    Array<T> createArray(std::initializer_list<std::uint32_t> extents, const typename T::Init &init,
                         colony_map map = COLONY_BLOCK) {
        Array<T> array;
        check(colony_create_array(raw, detail::number<T>, static_cast<std::uint32_t>(extents.size()), extents.begin(),
                                  map, &init, sizeof init, &array.raw));
        return array;
    }
    template <class T> Array<T> createSparse(std::uint32_t dimensions) {
        Array<T> array;
        check(colony_create_sparse(raw, detail::number<T>, dimensions, &array.raw));
        return array;
    }
    template <class T> Array<T> createGroup(const typename T::Init &init) {
        Array<T> array;
        check(colony_create_group(raw, detail::number<T>, &init, sizeof init, &array.raw));
        return array;
    }
    template <class T> Element<T> createOne(const typename T::Init &init) {
        Element<T> element;
        check(colony_create_one(raw, detail::number<T>, &init, sizeof init, &element.raw));
        return element;
    }
    template <class T> void insert(Element<T> element, const typename T::Init &init) {
        check(colony_insert(raw, element.raw, &init, sizeof init));
    }

    template <class T, class M> void send(Element<T> to, const M &message, std::int32_t priority = 0) {
        check(colony_send_with_priority(raw, to.raw, T::template entryOf<M>(), &message, sizeof message, priority));
    }
    template <class T, class M> void sendAfter(std::uint64_t delay_ns, Element<T> to, const M &message) {
        check(colony_send_after(raw, delay_ns, to.raw, T::template entryOf<M>(), &message, sizeof message));
    }
    template <class T, class M> void broadcast(Array<T> to, const M &message) {
        check(colony_broadcast(raw, to.raw, T::template entryOf<M>(), &message, sizeof message));
    }
    template <class T, class M>
    void multicast(Array<T> to, const std::vector<colony_index> &indices, const M &message) {
        check(colony_multicast(raw, to.raw, indices.data(), indices.size(), T::template entryOf<M>(), &message,
                               sizeof message));
    }

    void contribute(const std::vector<double> &values, colony_op op, colony_target to) {
        check(colony_contribute(raw, COLONY_DOUBLE, op, values.data(), values.size(), to));
    }
    void contribute(const std::vector<std::int64_t> &values, colony_op op, colony_target to) {
        check(colony_contribute(raw, COLONY_INT64, op, values.data(), values.size(), to));
    }
    template <class T> void whenQuiet(Element<T> element) { check(colony_when_quiet(raw, element.raw)); }

    void migrateTo(int pe) { check(colony_migrate_to(raw, static_cast<std::uint32_t>(pe))); }
    void atSync() { check(colony_at_sync(raw)); }
    void remove() { check(colony_remove(raw)); }

    colony_context *raw;
};

namespace detail {

/// Runs a member; an exception becomes a failure of the job.
template <class F> int run(colony_context *raw, F &&member) noexcept {
    try {
        Context context(raw);
        member(context);
        return 0;
    } catch (const std::exception &error) {
        return colony_fail(raw, error.what());
    } catch (...) {
        return colony_fail(raw, "an exception that is no std::exception");
    }
}

template <class T, class = void> struct has_arrived : std::false_type {};
template <class T>
struct has_arrived<T, std::void_t<decltype(std::declval<T &>().arrived(std::declval<Context &>()))>> : std::true_type {};
template <class T, class = void> struct has_resume : std::false_type {};
template <class T>
struct has_resume<T, std::void_t<decltype(std::declval<T &>().resume(std::declval<Context &>()))>> : std::true_type {};
template <class T, class = void> struct has_quiet : std::false_type {};
template <class T>
struct has_quiet<T, std::void_t<decltype(std::declval<T &>().quiet(std::declval<Context &>()))>> : std::true_type {};
template <class T, class = void> struct has_reduced : std::false_type {};
template <class T>
struct has_reduced<T, std::void_t<decltype(std::declval<T &>().reduced(std::declval<const colony_reduction &>(),
                                                                       std::declval<Context &>()))>>
    : std::true_type {};
template <class T, class = void> struct has_pack : std::false_type {};
template <class T>
struct has_pack<T, std::void_t<decltype(std::declval<const T &>().pack(std::declval<Buffer &>()))>> : std::true_type {};
template <class T, class = void> struct has_state_bytes : std::false_type {};
template <class T>
struct has_state_bytes<T, std::void_t<decltype(std::declval<const T &>().stateBytes())>> : std::true_type {};

/// The callbacks of class T, whose entry methods take messages of types M.
template <class T, class... M> struct Callbacks {
    static void *create(const void *init, std::size_t length, colony_context *raw) noexcept {
        using Init = typename T::Init;
        check_message<Init>();
        T *made = nullptr;
        int code = run(raw, [&](Context &context) {
            if (length != sizeof(Init)) throw std::length_error("init has another size than its type");
            made = new T(*static_cast<const Init *>(init), context);
        });
        return code == 0 ? made : nullptr;
    }
    static void destroy(void *state) noexcept { delete static_cast<T *>(state); }
    static int pack(const void *state, colony_buffer *into) noexcept {
        try {
            Buffer buffer(into);
            if constexpr (has_pack<T>::value) {
                static_cast<const T *>(state)->pack(buffer);
            } else {
                static_assert(std::is_trivially_copyable_v<T>, "the class needs pack() and a constructor from Reader &");
                buffer.write(*static_cast<const T *>(state));
            }
            return 0;
        } catch (...) {
            return 1;
        }
    }
    static void *unpack(const void *bytes, std::size_t length) noexcept {
        try {
            Reader reader(bytes, length);
            T *made;
            if constexpr (has_pack<T>::value) {
                made = new T(reader);
            } else {
                made = static_cast<T *>(::operator new(sizeof(T)));
                reader.read(made, 1);
            }
            if (reader.left() == 0) return made;
            delete made;
            return nullptr;
        } catch (...) {
            return nullptr;
        }
    }
    template <class One> static void deliver(T &object, const void *message, std::size_t length, Context &context) {
        check_message<One>();
        if (length != sizeof(One)) throw std::length_error("a message has another size than its type");
        object.call(*static_cast<const One *>(message), context);
    }
    static int entry(void *state, std::uint32_t entry, const void *message, std::size_t length,
                     colony_context *raw) noexcept {
        using Deliver = void (*)(T &, const void *, std::size_t, Context &);
        static constexpr Deliver all[] = {&deliver<M>...};
        return run(raw, [&](Context &context) { all[entry](*static_cast<T *>(state), message, length, context); });
    }
};

} // namespace detail

/// The base of class T, whose entry methods take messages of types M: `call(const M &, Context &)` for each.
template <class T, class... M> class Object {
    static_assert(sizeof...(M) > 0, "a class has at least one entry method");

public:
    /// The number of the entry method for a message type.
    template <class One> static constexpr std::uint32_t entryOf() { return detail::place<One, M...>(); }

    /// This element.
    static Element<T> self(const Context &context) {
        Element<T> element;
        check(colony_this(context.raw, &element.raw));
        return element;
    }

    /// The class as colony.h wants it. A message type may have a member `static constexpr const char *name`.
    static std::int32_t add(colony_program *program) {
        using Calls = detail::Callbacks<T, M...>;
        static const char *const names[] = {nameOf<M>(0)...};
        colony_class description{};
        description.size = sizeof description;
        description.name = T::name;
        description.entries = names;
        description.entry_count = sizeof...(M);
        description.create = Calls::create;
        description.destroy = Calls::destroy;
        description.pack = Calls::pack;
        description.unpack = Calls::unpack;
        description.entry = Calls::entry;
        if constexpr (detail::has_arrived<T>::value)
            description.arrived = [](void *state, colony_context *raw) {
                return detail::run(raw, [&](Context &context) { static_cast<T *>(state)->arrived(context); });
            };
        if constexpr (detail::has_resume<T>::value)
            description.resume = [](void *state, colony_context *raw) {
                return detail::run(raw, [&](Context &context) { static_cast<T *>(state)->resume(context); });
            };
        if constexpr (detail::has_quiet<T>::value)
            description.quiet = [](void *state, colony_context *raw) {
                return detail::run(raw, [&](Context &context) { static_cast<T *>(state)->quiet(context); });
            };
        if constexpr (detail::has_reduced<T>::value)
            description.reduced = [](void *state, const colony_reduction *result, colony_context *raw) {
                return detail::run(raw, [&](Context &context) { static_cast<T *>(state)->reduced(*result, context); });
            };
        description.state_bytes = [](const void *state) -> std::uint64_t {
            if constexpr (detail::has_state_bytes<T>::value)
                return static_cast<const T *>(state)->stateBytes();
            else
                return sizeof(T);
        };
        return check(colony_program_class(program, &description));
    }

private:
    template <class One> static auto nameOf(int) -> decltype(One::name) { return One::name; }
    template <class One> static const char *nameOf(long) { return "call"; }
};

/// A program: its classes, in the same order in every process.
class Program {
public:
    Program() : raw_(colony_program_new()) {}
    ~Program() { colony_program_free(raw_); }
    Program(const Program &) = delete;
    Program &operator=(const Program &) = delete;

    template <class T> Program &add() {
        detail::number<T> = T::add(raw_);
        return *this;
    }

    /// Runs the program and returns the exit code of the job. `start` is a function without captures.
    template <class Start> int run(int argc, char **argv, Start, std::uint32_t threads = 0, const char *balance = nullptr) {
        static_assert(std::is_empty_v<Start>, "start is called on another thread: it must not capture variables");
        colony_options options{};
        options.size = sizeof options;
        options.threads = threads;
        options.balance = balance;
        return colony_run(raw_, &options, argc, argv, [](int argc, char **argv, colony_context *raw) {
            return detail::run(raw, [&](Context &context) {
                alignas(Start) static const char empty[sizeof(Start)] = {};
                (*reinterpret_cast<const Start *>(empty))(argc, argv, context);
            });
        });
    }

private:
    colony_program *raw_;
};

} // namespace colony

#endif
