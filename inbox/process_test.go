package inbox_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/step"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

// processDSN names the database to a process of [world.start], and processLease is how long its lease lasts.
const (
	processDSN   = "INBOX_TEST_PROCESS_DSN"
	processLease = "INBOX_TEST_PROCESS_LEASE"
)

// twoCalls is a handler of two steps. Between them it reports that it has begun, and waits for permission to go on.
func twoCalls(pool bun.IDB, began func(), goOn func()) messaging.Handler {
	return messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error {
		for _, name := range []string{"first", "second"} {
			_, err := step.Call(ctx, name, func(ctx context.Context, _ string) (int, error) {
				// Outside is a table that no unit of the handler's touches.
				_, err := pool.NewRaw("INSERT INTO effects (what) VALUES (?)", name).Exec(context.WithoutCancel(ctx))
				return 0, err
			})
			if err != nil {
				return err
			}
			if name == "first" {
				began()
				goOn()
			}
		}
		return nil
	})
}

// TestProcess is the other process. It is a test of nothing where it has no database.
func TestProcess(t *testing.T) {
	dsn := os.Getenv(processDSN)
	if dsn == "" {
		return
	}
	lease, err := time.ParseDuration(os.Getenv(processLease))
	require.NoError(t, err)
	sqldb, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	defer sqldb.Close()
	pool := bun.NewDB(sqldb, pgdialect.New())
	box := newBox(uow.New(pool, &uow.Config{Telemetry: telemetry.Config{Logger: quiet()}}), &inbox.Config{LeaseTTL: lease})
	h := box.WrapLeased("billing", twoCalls(pool, func() { fmt.Fprintln(os.Stdout, "began") }, func() { _, _ = bufio.NewReader(os.Stdin).ReadString('\n') }))
	fmt.Fprintln(os.Stdout, "ended:", h.Handle(t.Context(), ordered("m", "o1")))
}

// start makes another process handle a message, and returns when that process is between its two steps.
func (w *world) start(lease time.Duration) (process *exec.Cmd, said *bufio.Reader, goOn func()) {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), os.Args[0], "-test.run=^TestProcess$")
	cmd.Env = append(os.Environ(), processDSN+"="+w.db.DSN, processLease+"="+lease.String())
	in, err := cmd.StdinPipe()
	require.NoError(w.t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(w.t, err)
	require.NoError(w.t, cmd.Start())
	said = bufio.NewReader(out)
	w.await(said, "began")
	return cmd, said, func() {
		_, err := in.Write([]byte("\n"))
		require.NoError(w.t, err)
	}
}

// await returns the next line that begins like this.
func (w *world) await(said *bufio.Reader, beginning string) string {
	w.t.Helper()
	for {
		line, err := said.ReadString('\n')
		require.NoError(w.t, err)
		if strings.HasPrefix(line, beginning) {
			return line
		}
	}
}

func TestProcessThatIsKilledBetweenTwoSteps(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	process, _, _ := w.start(time.Hour)
	require.NoError(t, process.Process.Kill())
	require.Error(t, process.Wait())
	h := w.process(nil).WrapLeased("billing", twoCalls(w.db.DB, func() {}, func() {}))
	require.ErrorIs(t, h.Handle(t.Context(), ordered("m", "o1")), inbox.ErrLeased, "it cannot be known that it is dead")
	w.takeOver(h, ordered("m", "o1"))
	require.Equal(t, []string{"first", "second"}, w.effects())
	require.Equal(t, 1, w.entries())
	w.nothingLeft()
}

// The process wakes up when another one is in the middle of its message: it makes no call any more, and settles nothing.
func TestProcessThatIsSuspendedForLongerThanItsLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	process, said, goOn := w.start(time.Second)
	require.NoError(t, process.Process.Signal(syscall.SIGSTOP))
	began, release := make(chan struct{}), make(chan struct{})
	h := w.process(nil).WrapLeased("billing", twoCalls(w.db.DB, func() { close(began) }, func() { <-release }))
	done := make(chan struct{})
	go func() {
		defer close(done)
		patiently(t, h, ordered("m", "o1"))
	}()
	<-began
	require.Equal(t, []string{"first"}, w.effects())
	goOn()
	require.NoError(t, process.Process.Signal(syscall.SIGCONT))
	require.Contains(t, w.await(said, "ended:"), "the lease of the message is lost")
	require.Zero(t, w.entries())
	close(release)
	<-done
	require.NoError(t, process.Wait())
	require.Equal(t, 1, w.entries())
	w.nothingLeft()
	second := column[int](t, w.db.DB, "SELECT count(*) FROM effects WHERE what = 'second'")[0]
	require.LessOrEqual(t, second, 2, "a call that was about to be made may be made")
	require.Equal(t, 1, column[int](t, w.db.DB, "SELECT count(*) FROM effects WHERE what = 'first'")[0])
}
