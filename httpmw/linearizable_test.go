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

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/uow"
)

// keyModel is what a key is to its clients: it has no answer until one request executes it, and that answer from then on.
// Who was told to come again is no part of it: judge looks at those.
func keyModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return "" },
		Step: func(state, _, output any) (bool, any) {
			answer, got := state.(string), output.(reply)
			said := fmt.Sprint(got.status, " ", got.body)
			switch {
			case got.status >= http.StatusInternalServerError:
				return false, answer
			case got.header.Get("Idempotent-Replayed") == "true":
				return answer == said, answer
			default:
				return answer == "", said
			}
		},
	}
}

// judge returns what is wrong with all that happened to one key, "" if nothing is.
func judge(history []porcupine.Operation) string {
	var answers []porcupine.Operation
	answered, conflict := int64(math.MaxInt64), int64(-1) // the first one's end, the last one's beginning
	for _, o := range history {
		if o.Output.(reply).status == http.StatusConflict {
			conflict = max(conflict, o.Call)
			continue
		}
		answers, answered = append(answers, o), min(answered, o.Return)
	}
	if conflict > answered {
		return "somebody was told to wait for an answer that somebody else had"
	}
	if result, _ := porcupine.CheckOperationsVerbose(keyModel(), answers, time.Minute); result != porcupine.Ok {
		return fmt.Sprintf("%s: there is no order in which the answers make sense: %s", result, tell(answers))
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
		var history []porcupine.Operation
		for i, output := range c.outputs {
			history = append(history, porcupine.Operation{ClientId: i, Output: output, Call: int64(2 * i), Return: int64(2*i + 1)})
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
		histories := make([][]porcupine.Operation, clients)
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
		var history []porcupine.Operation
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
func insist(transport *http.Transport, url, key string, client int, began time.Time) (history []porcupine.Operation, err error) {
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
		history = append(history, porcupine.Operation{ClientId: client, Output: got, Call: int64(call), Return: int64(time.Since(began))})
		if got.status != http.StatusConflict {
			return history, nil
		}
		<-time.After(5 * time.Millisecond) // as clients do that come again
	}
}

func tell(history []porcupine.Operation) string {
	var b strings.Builder
	for _, o := range history {
		got := o.Output.(reply)
		fmt.Fprintf(&b, "\n%d-%d client %d: %d %q %s", o.Call, o.Return, o.ClientId, got.status, got.header.Get("Idempotent-Replayed"), got.body)
	}
	return b.String()
}
