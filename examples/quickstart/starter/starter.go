package starter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// every is the interval between two lines of progress.
const every = 3 * time.Second

// Main compiles the program of a package, runs it with the arguments of this one, and returns its exit code. The package is found from the folder of the
// module, as the go command does it.
func Main(program string) int {
	code, err := run(program, os.Args[1:], os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func run(program string, args []string, out io.Writer) (code int, err error) {
	dir, err := os.MkdirTemp("", "oncebox-quickstart-")
	if err != nil {
		return 0, fmt.Errorf("make a folder for the program: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// The terminal sends Ctrl-C to all processes. This one waits for the program, which ends in order. A SIGTERM comes here alone, and is passed on.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)

	binary := filepath.Join(dir, filepath.Base(program))
	if err := build(program, binary, out); err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(context.Background(), binary, args...) //nolint:gosec // it was compiled a moment ago
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start %s: %w", program, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			if s == syscall.SIGTERM {
				_ = cmd.Process.Signal(s) // an error means that it has ended
			}
		case err := <-ended:
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				return max(exit.ExitCode(), 1), nil
			}
			return 0, err
		}
	}
}

// build compiles the program. With -v the go command names each package that it compiles; what is compiled already, it does not name.
func build(program, binary string, out io.Writer) error {
	cmd := exec.CommandContext(context.Background(), "go", "build", "-v", "-o", binary, program) //nolint:gosec // a package of this repository
	said, err := cmd.StderrPipe()
	if err != nil {
		return fmt.Errorf("compile %s: %w", program, err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("compile %s: %w", program, err)
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	p := progress{out: out}
	p.follow(said, ticker.C)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("compile %s: %w\n%s", program, err, p.rest.String())
	}
	return nil
}
