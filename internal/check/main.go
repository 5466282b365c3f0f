// Command check runs the quick checks for the time between two edits:
//
//	go run ./internal/check          # make check
//	go run ./internal/check -stop    # make stop
//
// It runs go vet, the tests that need no server, the rules of internal/house among them, and the tests of the packages that differ from the branch
// main. All of it comes from go's caches where nothing has changed. PostgreSQL and Pulsar are those of DATABASE_URL and PULSAR_URL. Without these it
// starts both once, and leaves them running for the next check, until make stop.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/oncebox/oncebox/internal/devenv"
)

func main() {
	stop := flag.Bool("stop", false, "end the servers that an earlier check has left running")
	keep := flag.Bool("keep", false, "for check itself: start the servers and keep them")
	base := flag.String("base", "main", "the branch or commit that changes are looked for against")
	flag.Parse()
	var err error
	switch {
	case *keep:
		err = keepServers()
	case *stop:
		err = stopServers()
	default:
		err = check(*base)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(1)
	}
}

var errFailed = errors.New("something failed, see above")

func check(base string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	all, err := listPackages(ctx)
	if err != nil {
		return err
	}
	files, err := changedFiles(ctx, base)
	if err != nil {
		return err
	}
	changed := needServers(all, changedPackages(all, files))
	servers := startServers(ctx, len(changed) > 0)
	r := runner{out: os.Stdout}
	r.run(ctx, nil, "vet", "vet", everything)
	r.run(ctx, nil, "tests without servers", append([]string{"test"}, withoutServers(all)...)...)
	env, err := servers()
	if err != nil {
		return err
	}
	if len(changed) > 0 {
		r.run(ctx, env, fmt.Sprintf("tests of %d packages that differ from %s", len(changed), base), append([]string{"test"}, changed...)...)
	}
	if r.failed {
		return errFailed
	}
	return nil
}

func stopServers() error {
	ended, err := devenv.Release(context.Background())
	if err == nil && !ended {
		fmt.Fprintln(os.Stdout, "no servers are kept")
	}
	return err
}
