package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

// command is one benchmark.
type command struct {
	name, summary string
	run           func(ctx context.Context, args []string) error
}

func commands() []command {
	return []command{
		{"commit", "business transactions per second, against pgx and bun by hand", commit},
		{"relay", "events per second from a backlog to Pulsar, against SendAsync by hand", relay},
		{"brokers", "the relay to each broker, against that broker's own client", brokers},
		{"table", "commit, consume, http, relay, latency and peers, on demand beside another commit", table},
		{"relay-flat", "that rate at any backlog, against the one at 100,000 rows", relayFlat},
		{"scaling", "events per second with several projectors, and seconds until a killed one is replaced", scaling},
		{"fairness", "milliseconds from commit to broker behind another tenant's backlog", fairness},
		{"outage", "seconds until the relay is as fast as before, when the broker comes back", outage},
		{"hot", "milliseconds of other aggregates' messages while those of one fail twice each, against a run without failures", hot},
		{"brokerless", "milliseconds from commit to consumer without a broker, while another consumer is in trouble", brokerless},
		{"latency", "milliseconds from commit to consumer, against an insert and a Send by hand", latency},
		{"http", "requests per second that are executed once, and replays, against a check of the key by hand", httpKeys},
		{"console", "milliseconds of the operators' pages over full tables, against a handler that reads nothing", consolePages},
		{"consume", "messages per second that are handled once, one by one and in batches, against pgx by hand", consume},
		{"long", "milliseconds from record to receipt while another transaction stays open, memory, and the rate afterwards", long},
		{"objects", "objects per unit, message and request, against their bounds", objects},
		{"peers", "commits and relay of oncebox, river, watermill-sql and oagudo/outbox at the same work", peers},
		{"telemetry", "what metrics and traces cost commit and relay", telemetryCost},
		{"scrape", "which part of a core it takes to read the gauges over millions of rows", scrape},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// run returns the exit code: 2 for a command line that makes no sense, 1 for a run that failed or was wrong.
func run(ctx context.Context, args []string) int {
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	for _, c := range commands() {
		if len(args) == 0 || args[0] != c.name {
			continue
		}
		err := c.run(ctx, args[1:])
		switch {
		case err == nil, errors.Is(err, flag.ErrHelp):
			return 0
		case errors.Is(err, errUsage):
			return 2
		default:
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", c.name, err)
			return 1
		}
	}
	out, code := os.Stderr, 2
	if len(args) == 0 {
		out, code = os.Stdout, 0 // the list is the answer
	}
	fmt.Fprintln(out, "usage: go run -C bench . COMMAND [-flag ...]     (-h after a command lists its flags)")
	for _, c := range commands() {
		fmt.Fprintf(out, "  %-10s %s\n", c.name, c.summary)
	}
	return code
}

// errUsage means that a flag is wrong. The reason was printed already.
var errUsage = errors.New("usage")

// parse reads a command's flags.
func parse(flags *flag.FlagSet, args []string) error {
	err := flags.Parse(args)
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
		fmt.Fprintln(flags.Output(), err)
		flags.Usage()
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		return errUsage
	}
	return err
}

// ints is a flag with several numbers: 1,8,32.
type ints []int

func (n *ints) String() string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(*n), " ", ","), "[]")
}

// Set replaces the numbers.
func (n *ints) Set(text string) error {
	*n = nil
	for part := range strings.SplitSeq(text, ",") {
		v, err := strconv.Atoi(part)
		if err != nil || v < 1 {
			return fmt.Errorf("%q is not a positive number", part)
		}
		*n = append(*n, v)
	}
	return nil
}

// progressf prints the progress of a run to stderr.
func progressf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
