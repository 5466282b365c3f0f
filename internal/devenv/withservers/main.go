// Command withservers runs a command with a real PostgreSQL and a real Pulsar that all its processes share:
//
//	go run ./internal/devenv/withservers go test ./...
//
// The command finds them in DATABASE_URL, PULSAR_URL and PULSAR_ADMIN_URL. Its exit code is this command's.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/oncebox/oncebox/internal/devenv"
)

func main() {
	err := run(context.Background(), os.Args[1:])
	var failed *exec.ExitError
	if errors.As(err, &failed) && failed.ExitCode() > 0 {
		os.Exit(failed.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "withservers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, command []string) (err error) {
	if len(command) == 0 {
		return errors.New("usage: withservers COMMAND [ARGUMENT...]")
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	servers, err := devenv.Start(ctx, &devenv.Options{Volatile: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, servers.Stop()) }()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(environment(), servers.Env()...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	return cmd.Run()
}

// environment returns this process's environment without variables that would be preferred to DATABASE_URL.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "ONCEBOX_DATABASE_URL=") })
}
