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
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

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
	var (
		postgres *devenv.PostgresServer
		pulsar   *devenv.PulsarServer
	)
	defer func() {
		if postgres != nil {
			err = errors.Join(err, postgres.Stop())
		}
		if pulsar != nil {
			err = errors.Join(err, pulsar.Stop())
		}
	}()
	start, startCtx := errgroup.WithContext(ctx)
	start.Go(func() (err error) {
		postgres, err = devenv.Postgres(startCtx, nil)
		return err
	})
	start.Go(func() (err error) {
		pulsar, err = devenv.Pulsar(startCtx, nil)
		return err
	})
	if err := start.Wait(); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "DATABASE_URL="+postgres.URL, "PULSAR_URL="+pulsar.URL, "PULSAR_ADMIN_URL="+pulsar.AdminURL)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	return cmd.Run()
}
