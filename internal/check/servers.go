package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/oncebox/oncebox/internal/devenv"
)

// startServers finds the servers, or starts them in the background. The returned function waits until they answer, and
// returns the variables with their addresses.
func startServers(ctx context.Context, needed bool) func() ([]string, error) {
	if !needed || os.Getenv("DATABASE_URL") != "" && os.Getenv("PULSAR_URL") != "" {
		return func() ([]string, error) { return nil, nil }
	}
	var env []string
	done := make(chan error, 1)
	go func() {
		var err error
		env, err = keptServers(ctx)
		done <- err
	}()
	return func() ([]string, error) {
		err := <-done
		return env, err
	}
}

func keptServers(ctx context.Context) ([]string, error) {
	env, err := devenv.Kept()
	if env != nil || err != nil {
		return env, err
	}
	if err := launchKeeper(ctx); err != nil {
		return nil, err
	}
	if env, err = devenv.Kept(); env == nil && err == nil {
		err = errors.New("another check starts the servers: run this again in a minute")
	}
	return env, err
}

// launchKeeper starts this program again as a process that keeps the servers, and returns when they answer. Servers of
// the check itself would end with it.
func launchKeeper(ctx context.Context) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "the servers are started, and stay until make stop")
	keeper := exec.Command(program, "-keep") //nolint:noctx // it outlives this process
	out, err := keeper.StdoutPipe()
	if err != nil {
		return err
	}
	if err := keeper.Start(); err != nil {
		return fmt.Errorf("start the servers: %w", err)
	}
	said := make(chan string, 1)
	go func() { said <- untilUp(out) }()
	select {
	case last := <-said:
		if last != isUp {
			return fmt.Errorf("start the servers: %w: %s", keeper.Wait(), last)
		}
		return nil
	case <-ctx.Done():
		return errors.Join(ctx.Err(), keeper.Process.Signal(syscall.SIGTERM))
	}
}

// untilUp reads what the keeper prints, up to isUp or its end, and returns the last line. After isUp the keeper prints nothing and stays.
func untilUp(out io.Reader) (last string) {
	for lines := bufio.NewScanner(out); last != isUp && lines.Scan(); {
		last = lines.Text()
	}
	return last
}

// isUp is the line that the keeper prints when the servers answer.
const isUp = "the servers are up"

// keepServers keeps the servers until its process is stopped. It ignores the terminal's ctrl-C and hang-up, which are
// meant for the check that has started it.
func keepServers() error {
	signal.Ignore(os.Interrupt, syscall.SIGHUP, syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return devenv.Keep(ctx, &devenv.Options{Out: os.Stdout, Volatile: true}, func() { fmt.Fprintln(os.Stdout, isUp) })
}
