package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// runner runs go commands. It prints a line for each, and the output of output of failing ones.
type runner struct {
	out    io.Writer
	failed bool
}

func (r *runner) run(ctx context.Context, env []string, what string, args ...string) {
	began := time.Now()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), env...)
	text, err := cmd.CombinedOutput()
	took := time.Since(began).Round(100 * time.Millisecond)
	if err == nil {
		fmt.Fprintf(r.out, "ok    %8s  %s\n", took, what)
		return
	}
	r.failed = true
	fmt.Fprintf(r.out, "FAIL  %8s  %s: %v\n", took, what, err)
	for line := range bytes.Lines(text) {
		if !isPassing(string(line)) {
			_, _ = r.out.Write(line)
		}
	}
}

// isPassing matches lines of go test about packages without failures, which are not printed.
func isPassing(line string) bool {
	return strings.HasPrefix(line, "ok  \t") || strings.Contains(line, "[no test files]")
}
