package httpmw_test

import (
	"crypto/rand"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/uow"
)

// exchange is a request of a client with its answer. The times count from the first request of all.
type exchange struct {
	client    int
	got       reply
	call, end time.Duration
}

func (e exchange) said() string { return fmt.Sprint(e.got.status, " ", e.got.body) }

// judge returns what is wrong with all that happened to one key, "" if nothing is. To its clients a key is a register that is written once: it has no
// answer until one request executes it, and that answer from then on. So the history is linearizable if exactly one answer is no replay, each replay
// repeats it, and no replay ended before that request began. Conflicts are no part of this: nobody is told to come again after an answer has arrived.
func judge(history []exchange) string {
	var executed, replayed []exchange
	answered, conflict := time.Duration(math.MaxInt64), time.Duration(-1) // the first one's end, the last one's beginning
	for _, e := range history {
		switch {
		case e.got.status == http.StatusConflict:
			conflict = max(conflict, e.call)
			continue
		case e.got.status >= http.StatusInternalServerError:
			return "a request has failed: " + e.said()
		case e.got.header.Get("Idempotent-Replayed") == "true":
			replayed = append(replayed, e)
		default:
			executed = append(executed, e)
		}
		answered = min(answered, e.end)
	}
	if conflict > answered {
		return "somebody was told to wait for an answer that somebody else had"
	}
	if len(executed) != 1 {
		return fmt.Sprintf("there is no order in which the answers make sense: %d of them are no replays%s", len(executed), tell(history))
	}
	for _, e := range replayed {
		if e.said() != executed[0].said() || e.end < executed[0].call {
			return "there is no order in which the answers make sense: the second is no replay of the first" + tell([]exchange{executed[0], e})
		}
	}
	return ""
}

func TestJudge(t *testing.T) {
	executed := func(body string) reply { return reply{http.StatusCreated, http.Header{}, body} }
	replayed := func(body string) reply {
		return reply{http.StatusCreated, http.Header{"Idempotent-Replayed": {"true"}}, body}
	}
	conflict := reply{status: http.StatusConflict}
	refused := func(body string) reply { return reply{http.StatusUnprocessableEntity, http.Header{}, body} }
	for name, c := range map[string]struct {
		outputs []reply // one after the other
		right   bool
	}{
		"executed, and replayed":   {[]reply{executed("a"), replayed("a"), replayed("a")}, true},
		"in flight, then executed": {[]reply{conflict, executed("a")}, true},
		"executed twice":           {[]reply{executed("a"), executed("b")}, false},
		"executed twice, the same": {[]reply{executed("a"), executed("a")}, false},
		"another answer":           {[]reply{executed("a"), replayed("b")}, false},
		"replayed before it was":   {[]reply{replayed("a"), executed("a")}, false},
		"in flight after its end":  {[]reply{executed("a"), conflict}, false},
		"refused, and in flight":   {[]reply{conflict, refused("a")}, true},
		"refused, then executed":   {[]reply{refused("a"), executed("b")}, false},
		"refused, for two reasons": {[]reply{refused("a"), refused("b")}, false},
		"another status":           {[]reply{refused("a"), replayed("a")}, false},
		"never executed":           {[]reply{replayed("a")}, false},
		"failed":                   {[]reply{{status: http.StatusInternalServerError}}, false},
	} {
		var history []exchange
		for i, output := range c.outputs {
			history = append(history, exchange{i, output, time.Duration(2 * i), time.Duration(2*i + 1)})
		}
		require.Equal(t, c.right, judge(history) == "", name)
	}
}

// A hundred clients send the same key at once to two processes, which know each other by the database only. What is paid is paid
// once. What is refused may be refused by several runs, since its work is undone before its answer is stored: all hear one of them.
func TestHundredClientsOnEachKey(t *testing.T) {
	for name, tc := range map[string]struct {
		handler func(*service) http.HandlerFunc
		pays    bool
	}{
		"that pay":     {func(s *service) http.HandlerFunc { return s.pay }, true},
		"that refuses": {func(s *service) http.HandlerFunc { return s.refuse }, false},
	} {
		t.Run(name, func(t *testing.T) {
			keys := nightly.N(10, 1000)
			s := newService(t)
			s.start(tc.handler(s))
			twin := s.twin()
			twin.start(tc.handler(twin))
			hundredClients(t, keys, []string{s.url, twin.url})
			require.Equal(t, keys, s.stored())
			require.Equal(t, s.payments(), s.emitted())
			runs := s.runs.Load() + twin.runs.Load()
			t.Logf("runs=%d", runs)
			if tc.pays {
				require.EqualValues(t, keys, runs, "executions")
				require.Equal(t, keys, s.payments())
				return
			}
			require.GreaterOrEqual(t, runs, int64(keys))
			require.Zero(t, s.payments())
		})
	}
}

func hundredClients(t *testing.T, keys int, urls []string) {
	t.Helper()
	const clients = 100
	transport := &http.Transport{MaxIdleConnsPerHost: clients, DisableCompression: true}
	defer transport.CloseIdleConnections()
	began := time.Now()
	sent, conflicts := 0, 0
	for n := range keys {
		key := fmt.Sprintf("key-%d", n)
		histories := make([][]exchange, clients)
		errs := make([]error, clients)
		var group sync.WaitGroup
		start := make(chan struct{})
		for i := range clients {
			group.Go(func() {
				<-start
				histories[i], errs[i] = insist(transport, urls[i%len(urls)], key, i, began)
			})
		}
		close(start)
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			group.Wait()
		}()
		await.Receive(t, answered, "answers to a hundred clients of %s", key)
		var history []exchange
		for i := range clients {
			require.NoError(t, errs[i])
			history = append(history, histories[i]...)
			conflicts += len(histories[i]) - 1
		}
		sent += len(history)
		require.Empty(t, judge(history), key)
	}
	t.Logf("clients=%d keys=%d requests=%d conflicts=%d total=%s", clients, keys, sent, conflicts, time.Since(began).Round(time.Millisecond))
}

// refuse is a handler whose work is undone and whose answer differs from run to run.
func (s *service) refuse(w http.ResponseWriter, r *http.Request) {
	_, err := s.insert(r.Context())
	noError(s.t, err)
	http.Error(w, "no funds: "+rand.Text(), http.StatusUnprocessableEntity)
}

// twin is the same service in another process: another pool, another store.
func (s *service) twin() *service {
	other := &service{t: s.t, db: &pgtest.DB{DB: s.db.Another(s.t), Schema: s.db.Schema, DSN: s.db.DSN}, cfg: s.cfg, sink: &sink{}}
	other.units, other.keys = uow.New(other.db.DB, &uow.Config{Source: "test"}, other.sink), newKeys(s)
	return other
}

// insist sends a request until it is answered with something else than 409, and writes down all of it.
func insist(transport *http.Transport, url, key string, client int, began time.Time) (history []exchange, err error) {
	for {
		r, err := http.NewRequest(http.MethodPost, url+"/payments", strings.NewReader("{}"))
		if err != nil {
			return nil, err
		}
		r.Header.Set("Idempotency-Key", key)
		r.Header.Set("X-Principal", "u1")
		call := time.Since(began)
		got, err := sendOn(transport, r)
		if err != nil {
			return nil, err
		}
		history = append(history, exchange{client, got, call, time.Since(began)})
		if got.status != http.StatusConflict {
			return history, nil
		}
		<-time.After(5 * time.Millisecond) // as clients do that come again
	}
}

func tell(history []exchange) string {
	var b strings.Builder
	for _, e := range history {
		fmt.Fprintf(&b, "\n%s to %s, client %d: %q %s", e.call, e.end, e.client, e.got.header.Get("Idempotent-Replayed"), e.said())
	}
	return b.String()
}
