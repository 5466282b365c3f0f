package quietlog_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/internal/quietlog"
)

const failed, parked, dead = "oncebox: handler failed, its key is held", "oncebox: message parked, it waits", "oncebox: message given up, it is a dead letter"

var errAway = errors.New("smtp 421: connection refused")

// book is a log that groups. Its lines have no time.
type book struct {
	logbook.Book
	*slog.Logger
}

func newBook(interval time.Duration) *book {
	b := &book{}
	b.Logger = quietlog.New(slog.New(slog.NewTextHandler(&b.Book, nil)), interval)
	return b
}

func (b *book) lines() []string {
	text := regexp.MustCompile(`time=\S+ `).ReplaceAllString(b.Book.String(), "")
	return strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
}

// outage makes something fail after every pause for as long as it lasts.
func outage(lasts, pause time.Duration, fail func(n int)) {
	for n, began := 0, time.Now(); time.Since(began) < lasts; n++ {
		fail(n)
		time.Sleep(pause) // of synctest
	}
}

// silence is longer than any group needs to be over.
func silence() { time.Sleep(24 * time.Hour) }

func inBubble(t *testing.T, fn func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, fn)
}

func TestOutageIsALineAtItsBeginningOneAMinuteAndOneAtItsEnd(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBook(0)
		outage(150*time.Second, 130*time.Millisecond, func(n int) {
			b.Warn(failed, "consumer", "billing", "id", fmt.Sprint("id-", n), "error", fmt.Errorf("order %d: %w", n, errAway))
		})
		silence()
		lines := b.lines()
		require.Len(t, lines, 4, "%s", b)
		require.Equal(t, `level=WARN msg="`+failed+`" consumer=billing id=id-0 error="order 0: smtp 421: connection refused"`, lines[0], "as it is")
		require.Regexp(t, `^level=WARN msg="`+failed+`" .*id=id-461 .*repeated.lines=461 repeated.total=462 repeated.since=\S+ repeated.last=\S+$`, lines[1])
		require.Regexp(t, `^level=WARN .*repeated.lines=462 repeated.total=924 `, lines[2])
		require.Regexp(t, `^level=INFO msg="oncebox: not seen for a while: handler failed, .*consumer=billing `, lines[3])
		require.Contains(t, lines[3], "repeated.quiet=1m30s repeated.total=1154 ")
	})
}

// say is a line of a log.
type say func(*slog.Logger)

func at(level slog.Level, message string, attrs ...any) say {
	return func(l *slog.Logger) { l.Log(context.Background(), level, message, attrs...) }
}

func warn(message string, attrs ...any) say { return at(slog.LevelWarn, message, attrs...) }

func bad(message string, attrs ...any) say { return at(slog.LevelError, message, attrs...) }

// of is a warning of a consumer.
func of(consumer string, err any, more ...any) say {
	return warn(failed, append([]any{"consumer", consumer, "error", err}, more...)...)
}

// many returns attributes whose values differ from message to message.
func many(text string, n int) []any {
	return []any{
		"id", text, "tenant", text, "ordering_key", text, "message_key", text, "aggregate_id", text, "key", text, "stack", text,
		"try", n, "lane", n, "wait", time.Duration(n), "since", time.Unix(int64(n), 0),
	}
}

// All lines of one consumer about one cause are one group. An error that asks for an action is not part of it.
func TestGroups(t *testing.T) {
	broken := fmt.Errorf("renew: %w", driver.ErrBadConn)
	for name, c := range map[string]struct {
		a, b say
		one  bool
	}{
		"numbers of an error":    {of("a", errors.New("order 1")), of("a", errors.New("order 2")), true},
		"text of an error":       {of("a", errors.New("one")), of("a", errors.New("two")), false},
		"error as a text":        {of("a", "order 1"), of("a", errors.New("order 2")), true},
		"consumer":               {of("a", errAway), of("b", errAway), false},
		"topic of a consumer":    {of("a", errAway, "topic", "x"), of("a", errAway, "topic", "y"), true},
		"type":                   {warn("oncebox: refused", "type", "x", "error", errAway), warn("oncebox: refused", "type", "y", "error", errAway), true},
		"topic":                  {warn("oncebox: refused", "topic", "x", "error", errAway), warn("oncebox: refused", "topic", "y", "error", errAway), false},
		"message of a warning":   {of("a", errAway), warn(parked, "consumer", "a", "error", errAway), true},
		"message of an error":    {bad(failed, "consumer", "a", "error", errAway), bad(dead, "consumer", "a", "error", errAway), false},
		"level":                  {of("a", errAway), bad(failed, "consumer", "a", "error", errAway), false},
		"route":                  {bad("oncebox: late", "method", "POST", "route", "/a"), bad("oncebox: late", "method", "POST", "route", "/b"), false},
		"same route":             {bad("oncebox: late", "method", "POST", "route", "/a"), bad("oncebox: late", "method", "POST", "route", "/a"), true},
		"what there is much of":  {bad(dead, many("a", 1)...), bad(dead, many("b", 2)...), true},
		"type without an error":  {warn("oncebox: no consumer", "type", "x"), warn("oncebox: no consumer", "type", "y"), false},
		"topic without an error": {warn("oncebox: parked", "consumer", "a", "topic", "x"), warn("oncebox: parked", "consumer", "a", "topic", "y"), false},
		"the database":           {of("a", driver.ErrBadConn), warn("oncebox: not renewed", "error", broken), true},
		"no error":               {of("a", nil), warn(failed, "consumer", "a"), true},
		"info":                   {at(slog.LevelInfo, "oncebox: claimed"), at(slog.LevelInfo, "oncebox: claimed"), false},
		"debug":                  {at(slog.LevelDebug, "x"), at(slog.LevelDebug, "x"), false},
		"what the logger has":    {func(l *slog.Logger) { l.With("consumer", "a").With("error", errAway).Warn(failed) }, of("a", errAway), true},
		"and tells apart":        {func(l *slog.Logger) { l.With("consumer", "b").Warn(failed, "error", errAway) }, of("a", errAway), false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b := &book{}
				l := quietlog.New(slog.New(slog.NewTextHandler(&b.Book, &slog.HandlerOptions{Level: slog.LevelDebug})), 0)
				c.a(l)
				c.b(l)
				want := 2
				if c.one {
					want = 1
				}
				require.Len(t, b.lines(), want, "%s", b)
			})
		})
	}
}

// The line of a minute names what else there was.
func TestLineNamesWhatElseThereWas(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBook(0)
		for n := range 70 {
			b.Warn(failed, "consumer", "billing", "error", errAway)
			if n%2 == 0 {
				b.Warn(parked, "consumer", "billing", "error", errAway)
			}
			time.Sleep(999 * time.Millisecond)
		}
		require.Len(t, b.lines(), 2)
		require.Contains(t, b.lines()[1], `repeated.among="60 × handler failed (billing), 31 × message parked (billing)"`)
	})
}

// The database is one group for the whole process. Each level has a group of its own, because alerts depend on it.
func TestWhatIsAwayIsOneGroup(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBook(0)
		outage(100*time.Second, time.Second, func(n int) {
			for _, consumer := range []string{"billing", "mailer", "seats", "search"} {
				b.Warn(failed, "consumer", consumer, "error", driver.ErrBadConn)
				b.WarnContext(quietlog.Away(t.Context(), quietlog.Broker), "oncebox: no connection", "consumer", consumer)
			}
			b.Warn("oncebox: lanes could not be renewed", "error", fmt.Errorf("renew: %w", driver.ErrBadConn))
			for range 100 {
				b.Error("oncebox: a request failed", "route", fmt.Sprint("/", n), "error", driver.ErrBadConn)
			}
		})
		for _, consumer := range []string{"billing", "mailer", "seats", "search"} {
			b.InfoContext(quietlog.Away(t.Context(), quietlog.Broker), "oncebox: connected again", "consumer", consumer)
		}
		silence()
		lines := b.lines()
		require.Len(t, lines, 3*3+2, "%s", b)
		require.Contains(t, b.Book.String(), `msg="oncebox: not seen for a while: handler failed, its key is held" consumer=billing`, "as it began")
		const back = "1 × connected again (mailer), 1 × connected again (search), 1 × connected again (seats)"
		require.Contains(t, b.Book.String(), `repeated.among="`+back+`"`, "what is back has one more line, and no end")
		require.Zero(t, b.Count("not seen for a while: connected"))
	})
}

// A database that is silent shows in errors that say no more than that time was over. A handler's own deadline is another matter.
func TestDatabaseThatIsSilent(t *testing.T) {
	late := fmt.Errorf("leader: take the lease: %w", context.DeadlineExceeded)
	inBubble(t, func(t *testing.T) {
		b := newBook(0)
		b.Warn(failed, "consumer", "billing", "error", late)
		b.Error("oncebox: a request failed", "route", "/a", "error", late)
		b.Error("oncebox: a request failed", "route", "/b", "error", fmt.Errorf("ask: %w", context.Canceled))
		require.Len(t, b.lines(), 3, "each may have waited for something of its own")
		b.Warn("oncebox: statistics could not be read", "task", "a", "error", late)
		b.Warn("oncebox: statistics could not be read", "task", "b", "error", late)
		require.Len(t, b.lines(), 4)
		b.Warn(failed, "consumer", "mailer", "error", late)
		require.Len(t, b.lines(), 4, "the database is away")
		b.Error("oncebox: a request failed", "route", "/c", "error", late)
		b.Error("oncebox: a request failed", "route", "/d", "error", late)
		require.Len(t, b.lines(), 5)
		b.Warn("oncebox: not asked", "error", &url.Error{Op: "Get", URL: "http://admin", Err: context.DeadlineExceeded})
		require.Len(t, b.lines(), 6, "it says whose")
	})
}

// Something that fails once has one line.
func TestOneFailureIsOneLine(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBook(0)
		b.Warn(failed, "consumer", "billing", "error", errAway)
		silence()
		require.Len(t, b.lines(), 1)
	})
}

// However long the pauses between two tries are, known or not, a group does not begin and end with each of them.
func TestPausesAreNoEnd(t *testing.T) {
	for _, c := range []struct {
		pause time.Duration
		said  []any
		most  int // ends
	}{
		{time.Second, nil, 1}, {50 * time.Second, nil, 1}, {80 * time.Second, nil, 1},
		{100 * time.Second, nil, 2}, {5 * time.Minute, nil, 2}, {9 * time.Minute, nil, 2},
		{10 * time.Minute, []any{"wait", 10 * time.Minute}, 1}, {time.Hour, []any{"pause", time.Hour}, 1},
	} {
		t.Run(c.pause.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b := newBook(0)
				outage(10*time.Hour, c.pause, func(int) { b.Warn(failed, append([]any{"consumer", "billing", "error", errAway}, c.said...)...) })
				silence()
				ends := b.Count("not seen for a while")
				require.Positive(t, ends, "it is over in the end")
				require.LessOrEqual(t, ends, c.most, "%s", b)
				require.LessOrEqual(t, len(b.lines())-ends, 10*60+1, "a line a minute at most")
				require.GreaterOrEqual(t, len(b.lines())-ends, int(10*time.Hour/max(c.pause, 2*time.Minute)), "it goes on to be told")
			})
		})
	}
}

// Records that were only counted are written within a minute even if the next try is far away.
func TestCountIsToldBeforeALongPause(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBook(0)
		for range 400 {
			b.Warn(failed, "consumer", "billing", "error", errAway, "wait", 10*time.Minute)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, b.lines(), 2)
		require.Contains(t, b.lines()[1], "repeated.lines=399 repeated.total=400")
		time.Sleep(10 * time.Minute)
		require.Len(t, b.lines(), 2, "it is not over")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, b.lines(), 3)
		require.Contains(t, b.lines()[2], "repeated.quiet=11m30s")
	})
}

// A second outage, hours or minutes later, is one of its own.
func TestSecondOutageBeginsAnew(t *testing.T) {
	for _, later := range []time.Duration{2 * time.Minute, 5 * time.Minute, 2 * time.Hour} {
		inBubble(t, func(t *testing.T) {
			b := newBook(0)
			for range 2 {
				outage(100*time.Second, time.Second, func(int) { b.Warn(failed, "consumer", "billing", "error", errAway) })
				time.Sleep(later)
			}
			require.Len(t, b.lines(), 6, "%s", b)
			require.Equal(t, 2, b.Count("repeated.quiet=1m30s"))
		})
	}
}

// The groups are bounded: what differs in each line in a way that nobody foresaw is a few lines all the same.
func TestGroupsAreBounded(t *testing.T) {
	word := func(n int) string { // without a digit
		return strings.Map(func(r rune) rune { return r - '0' + 'a' }, fmt.Sprintf("%09d", n))
	}
	inBubble(t, func(t *testing.T) {
		b := newBook(0)
		for n := range 10_000 {
			b.Warn(failed, "consumer", "billing", "error", errors.New("no such customer: "+word(n)))
		}
		require.Len(t, b.lines(), 21, "twenty causes, and the others")
		silence()
		require.Len(t, b.lines(), 22)
		require.Contains(t, b.lines()[21], "repeated.total=9980")
	})
	inBubble(t, func(t *testing.T) {
		b := newBook(0)
		for n := range 10_000 {
			b.Warn("oncebox: "+word(n), "topic", word(n))
		}
		require.Len(t, b.lines(), 2001, "a thousand groups, a thousand messages, and the others")
	})
	inBubble(t, func(t *testing.T) {
		b := newBook(0)
		for n := range 10_000 {
			b.Warn(failed, "consumer", word(n), "error", errAway)
		}
		b.Warn(parked, "consumer", "another", "error", errAway)
		require.Len(t, b.lines(), 1002, "a thousand consumers, and a message each for the others")
		b.Warn(parked, "error", driver.ErrBadConn)
		require.Len(t, b.lines(), 1003, "what is away has its group")
	})
}

// Nothing is hidden when a process ends, and nothing comes afterwards.
func TestFlushWritesWhatWasCounted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBook(0)
		for range 3 {
			b.Warn(failed, "consumer", "billing", "error", errAway)
			b.Warn(failed, "consumer", "mailer", "error", errAway)
		}
		b.Warn(failed, "consumer", "seats", "error", errAway)
		quietlog.Flush(b.With("a", 1))
		require.Len(t, b.lines(), 5)
		require.Equal(t, 2, b.Count("repeated.lines=2 repeated.total=3"))
		silence()
		require.Len(t, b.lines(), 5)
		b.Warn(failed, "consumer", "billing", "error", errAway)
		require.Len(t, b.lines(), 6, "it begins anew")
	})
	quietlog.Flush(slog.Default()) // that of others is left alone
}

// stuck is a handler whose first line by a timer takes until Flush has returned, or a little while if it waits.
type stuck struct {
	slog.Handler
	begun            *atomic.Bool
	writing, flushed chan struct{}
	lost             chan bool
}

func (s stuck) Handle(ctx context.Context, r slog.Record) error {
	if r.NumAttrs() > 1 && s.begun.CompareAndSwap(false, true) { // repeated.lines and so on
		close(s.writing)
		select {
		case <-s.flushed:
			s.lost <- true
		case <-time.After(50 * time.Millisecond):
			s.lost <- false
		}
	}
	return s.Handler.Handle(ctx, r)
}

// A process that ends does not lose a line that a timer is writing.
func TestFlushWaitsForALineThatIsBeingWritten(t *testing.T) {
	var b logbook.Book
	h := stuck{slog.NewTextHandler(&b, nil), new(atomic.Bool), make(chan struct{}), make(chan struct{}), make(chan bool, 1)}
	l := quietlog.New(slog.New(h), time.Millisecond)
	for writing := false; !writing; { // a second line that comes after the pause of the first begins a new one
		l.Warn(failed, "error", errAway)
		select {
		case <-h.writing:
			writing = true
		default:
			runtime.Gosched()
		}
	}
	quietlog.Flush(l)
	close(h.flushed)
	require.False(t, <-h.lost)
}

// wrapping is a handler of a program's, which says what is behind it.
type wrapping struct{ slog.Handler }

func (w wrapping) Unwrap() slog.Handler { return w.Handler }

func TestLoggerIsWrappedOnce(t *testing.T) {
	b := newBook(0)
	require.Same(t, b.Logger, quietlog.New(b.Logger, time.Hour))
	with := slog.New(wrapping{b.With("a", 1).Handler()})
	require.Same(t, with, quietlog.New(with, 0))
	every := newBook(quietlog.Off)
	require.Same(t, every.Logger, quietlog.New(every.Logger, 0), "every line stays every line")
	for range 3 {
		every.Warn(failed, "consumer", "billing", "error", errAway)
		quietlog.Every(b.Logger).Error("oncebox: under an id")
	}
	require.Len(t, every.lines(), 3)
	require.Len(t, b.lines(), 3)
	quietlog.Flush(every.Logger)
	require.NotNil(t, quietlog.New(nil, 0))
}

// The program's own level and handler have the last word.
func TestProgramsHandlerDecides(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := &book{}
		l := quietlog.New(slog.New(slog.NewTextHandler(&b.Book, &slog.HandlerOptions{Level: slog.LevelWarn})), 0)
		l = l.WithGroup("app").With("consumer", "none of ours")
		outage(100*time.Second, 999*time.Millisecond, func(int) { l.Warn(failed, "error", errAway) })
		silence()
		require.Len(t, b.lines(), 2, "no line at INFO: %s", b)
		require.Contains(t, b.lines()[1], "app.error=")
		require.Contains(t, b.lines()[1], "app.repeated.lines=60")
	})
}
