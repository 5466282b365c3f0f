package starter

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What the go command does is counted and printed at each tick; a build that ends before the first one prints nothing.
func TestProgressIsPrintedAtEachTick(t *testing.T) {
	t.Parallel()
	read, write := io.Pipe()
	tick, printed := make(chan time.Time), new(strings.Builder)
	p := progress{out: printed}
	ended := make(chan struct{})
	go func() {
		p.follow(read, tick)
		close(ended)
	}()
	say := func(line string) {
		_, err := io.WriteString(write, line+"\n")
		require.NoError(t, err)
	}
	say("go: downloading github.com/uptrace/bun v1.2.18")
	say("")
	tick <- time.Now()
	say("internal/cpu")
	say("github.com/uptrace/bun")
	say("# example.com/broken")
	say("./main.go:3:1: syntax error")
	say("")
	tick <- time.Now()
	require.NoError(t, write.Close())
	<-ended
	require.Equal(t, "The first run downloads modules and compiles them. That takes a minute or two, and happens once.\n"+
		"  1 modules downloaded, 0 packages compiled\n  1 modules downloaded, 2 packages compiled\n", printed.String())
	require.Contains(t, p.rest.String(), "# example.com/broken\n./main.go:3:1: syntax error\n")

	quick := new(strings.Builder)
	(&progress{out: quick}).follow(strings.NewReader("internal/cpu\n"), nil)
	require.Empty(t, quick.String())
}

// The program gets the arguments, and its exit code is returned. A program that does not compile is an error that shows why.
func TestProgramRunsInItsPlace(t *testing.T) {
	dir := t.TempDir()
	program := func(body string) string {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n"+body), 0o600))
		return filepath.Join(dir, "main.go")
	}
	code, err := run(program(`import "os"
func main() { os.Exit(len(os.Args)) }`), []string{"a", "b", "c", "d"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, 5, code)
	code, err = run(program("func main() {}"), nil, io.Discard)
	require.NoError(t, err)
	require.Zero(t, code)
	_, err = run(program("func main() { nothing() }"), nil, io.Discard)
	require.ErrorContains(t, err, "undefined: nothing")
}
