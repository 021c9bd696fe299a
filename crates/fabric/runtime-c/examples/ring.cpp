// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A token goes around a ring of objects, each of which moves to the next PE when the token has passed.
//
//     ring [MEMBERS [LAPS [PEs]]]

#include <colony.hpp>

#include <cstdio>
#include <cstdlib>

/// The token: what it has counted, and a number that every hop changes.
struct Token {
    static constexpr const char *name = "token";
    std::int64_t hops, last;
    std::uint64_t value;
};

/// The end: every member says how often it saw the token.
struct Report {
    static constexpr const char *name = "report";
};

struct Setup {
    std::int64_t members, laps;
};

class Member : public colony::Object<Member, Token, Report> {
public:
    static constexpr const char *name = "Member";
    using Init = Setup;

    Member(const Init &setup, colony::Context &) : setup_(setup) {}

    // the vector makes the class one that is not trivially copyable, so it packs itself
    explicit Member(colony::Reader &reader) : setup_(reader.read<Setup>()), values_(reader.read<std::uint64_t>()) {
        reader.read(values_.data(), values_.size());
    }
    void pack(colony::Buffer &buffer) const {
        buffer.write(setup_);
        buffer.write(static_cast<std::uint64_t>(values_.size()));
        buffer.write(values_.data(), values_.size());
    }

    void call(const Token &token, colony::Context &context) {
        const auto me = self(context);
        Token next = token;
        next.hops++;
        next.value = next.value * 6364136223846793005u + static_cast<std::uint64_t>(me.index()) + 1442695040888963407u;
        values_.push_back(next.value);
        if (next.hops == next.last) {
            context.broadcast(me.array(), Report{});
            return;
        }
        context.send(me.array().at((me.index() + 1) % setup_.members), next);
        context.migrateTo((context.pe() + 1) % context.pes());
    }

    void call(const Report &, colony::Context &context) {
        std::uint64_t sum = 0;
        for (const auto value : values_) sum += value;
        context.contribute(std::vector<std::int64_t>{static_cast<std::int64_t>(values_.size()),
                                                     static_cast<std::int64_t>(sum)},
                           COLONY_SUM, colony::to(self(context).array().at(0)));
    }

    void reduced(const colony_reduction &result, colony::Context &context) {
        std::printf("%lld hops, checksum %016llx\n", static_cast<long long>(result.integers[0]),
                    static_cast<unsigned long long>(result.integers[1]));
        context.exit(0);
    }

private:
    Setup setup_;
    std::vector<std::uint64_t> values_;
};

int main(int argc, char **argv) {
    colony::Program program;
    program.add<Member>();
    const auto threads = static_cast<std::uint32_t>(argc > 3 ? std::atoi(argv[3]) : 0);
    const auto start = [](int argc, char **argv, colony::Context &context) {
        const Setup setup{argc > 1 ? std::atoi(argv[1]) : 8, argc > 2 ? std::atoi(argv[2]) : 100};
        if (setup.members < 1 || setup.laps < 1) context.fail("MEMBERS and LAPS have to be at least 1");
        const auto ring = context.createArray<Member>({static_cast<std::uint32_t>(setup.members)}, setup);
        context.send(ring.at(0), Token{0, setup.members * setup.laps, 1});
    };
    return program.run(argc, argv, start, threads);
}
