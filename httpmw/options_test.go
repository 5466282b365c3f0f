package httpmw_test

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/internal/await"
)

// ask sends a request and does not wait for its answer.
func (s *service) ask(key string) <-chan reply {
	r, answer := s.request(key, "{}"), make(chan reply, 1)
	go func() {
		got, err := send(r)
		noError(s.t, err)
		answer <- got
	}()
	return answer
}

// A second request with the same key waits for the first one, holds no connection while it does, and gets the answer.
func TestWaitForTheAnswer(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.cfg.Wait = 10 * time.Minute
	begun, finish := make(chan struct{}), make(chan struct{})
	s.start(func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-finish
		s.pay(w, r)
	})
	first := s.ask("k")
	<-begun
	waiting := []<-chan reply{s.ask("k"), s.ask("k")}
	// Each look is a unit that is rolled back, so it has looked several times, and between them given back its connection.
	await.True(t, func() bool { return s.counter("oncebox.uow.units")["rolled_back"] >= 6 }, "six looks")
	await.True(t, func() bool { return s.pool.Stats().InUse == 1 }, "connections to be given back, but for that of the handler")
	for _, answer := range waiting {
		require.Empty(t, answer)
	}
	close(finish)

	require.JSONEq(t, `{"id": 1}`, (<-first).body)
	for _, answer := range waiting {
		got := <-answer
		require.Equal(t, http.StatusCreated, got.status, got.body)
		require.JSONEq(t, `{"id": 1}`, got.body)
		require.Equal(t, "true", got.header.Get("Idempotent-Replayed"))
	}
	require.EqualValues(t, 1, s.runs.Load())
	require.Equal(t, map[string]int64{"executed": 1, "replayed": 2}, s.counter("oncebox.idempotency.requests"))
}

// The first request frees the key, and a request that waits is executed.
func TestWaitForAKeyThatIsFreed(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.cfg.Wait = 10 * time.Minute
	begun, finish := make(chan struct{}), make(chan struct{})
	s.start(func(w http.ResponseWriter, r *http.Request) {
		if s.runs.Load() == 1 {
			close(begun)
			<-finish
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		s.pay(w, r)
	})
	first := s.ask("k")
	<-begun
	second := s.ask("k")
	await.True(t, func() bool { return s.counter("oncebox.uow.units")["rolled_back"] >= 1 }, "a look")
	close(finish)
	require.Equal(t, http.StatusCreated, (<-second).status)
	require.Equal(t, http.StatusBadGateway, (<-first).status)
	require.EqualValues(t, 2, s.runs.Load())
	require.Equal(t, 1, s.payments())
}

func TestWaitEnds(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.cfg.Wait = 100 * time.Millisecond
	begun, finish := make(chan struct{}), make(chan struct{})
	s.start(func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-finish
		s.pay(w, r)
	})
	first := s.ask("k")
	<-begun
	got := s.post("k", "{}")
	require.Equal(t, http.StatusConflict, got.status)
	kind, retryable := got.problem(t)
	require.Equal(t, "idempotency-key-in-progress", kind)
	require.True(t, retryable)
	close(finish)
	require.Equal(t, http.StatusCreated, (<-first).status)
}

// A client that goes away waits no longer, and is not executed when the key becomes free.
func TestWaitEndsWithTheClient(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.cfg.Wait = time.Hour
	begun, finish := make(chan struct{}), make(chan struct{})
	s.start(func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-finish
		w.WriteHeader(http.StatusBadGateway)
	})
	first := s.ask("k")
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	r := s.request("k", "{}").WithContext(ctx)
	go func() {
		_, err := send(r)
		gone <- err
	}()
	await.True(t, func() bool { return s.counter("oncebox.uow.units")["rolled_back"] >= 1 }, "a look")
	cancel()
	require.ErrorIs(t, <-gone, context.Canceled)
	await.True(t, func() bool { return s.counter("oncebox.idempotency.requests")["in_progress"] == 1 }, "the end of the request")
	close(finish)
	require.Equal(t, http.StatusBadGateway, (<-first).status)
	require.EqualValues(t, 1, s.runs.Load())
}

func TestExcludedMembers(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.cfg.Exclude = []string{"/sent_at", "/client/trace~1id"}
	s.start(s.pay)
	first := s.post("k", `{"amount": 1, "sent_at": 1, "client": {"name": "a", "trace/id": "x"}}`)
	require.Equal(t, http.StatusCreated, first.status)
	for name, tc := range map[string]struct {
		body string
		same bool
	}{
		"other values":   {`{"amount": 1, "sent_at": [2], "client": {"name": "a", "trace/id": "y"}}`, true},
		"left out":       {`{"amount": 1, "client": {"name": "a"}}`, true},
		"another member": {`{"amount": 2, "sent_at": 1, "client": {"name": "a", "trace/id": "x"}}`, false},
		"beside it":      {`{"amount": 1, "sent_at": 1, "client": {"name": "b", "trace/id": "x"}}`, false},
		"elsewhere":      {`{"amount": 1, "client": {"name": "a", "sent_at": 2}}`, false},
		"member added":   {`{"amount": 1, "client": {"name": "a"}, "more": null}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := s.post("k", tc.body)
			if tc.same {
				require.Equal(t, first.body, got.body)
			} else {
				require.Equal(t, http.StatusUnprocessableEntity, got.status)
			}
		})
	}
	require.Equal(t, 1, s.payments())
}

func TestAPIVersionIsPartOfTheRequest(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.cfg.APIVersion = func(r *http.Request) string { return r.Header.Get("Api-Version") }
	s.start(s.pay)
	require.Equal(t, http.StatusCreated, s.post("k", "{}", header("Api-Version", "1")).status)
	require.Equal(t, http.StatusUnprocessableEntity, s.post("k", "{}", header("Api-Version", "2")).status)
	require.Equal(t, "true", s.post("k", "{}", header("Api-Version", "1")).header.Get("Idempotent-Replayed"))
}

// A deployment that changes what is compared still recognizes the retries of earlier requests.
func TestFingerprintsOfTwoConfigurationsAreNotCompared(t *testing.T) {
	t.Parallel()
	s := newService(t)
	excluded := [][]string{nil, {"/at"}, {"/at", "/by"}}
	for before, exclude := range excluded {
		key := strconv.Itoa(before)
		s.cfg.Exclude = exclude
		s.start(s.pay)
		require.Equal(t, http.StatusCreated, s.post(key, `{"amount": 1, "at": 1, "by": 1}`).status)
		for after, exclude := range excluded {
			s.cfg.Exclude = exclude
			s.start(s.pay)
			got := s.post(key, `{"amount": 1, "at": 1, "by": 1}`)
			require.Equal(t, "true", got.header.Get("Idempotent-Replayed"), "%d, then %d: %s", before, after, got.body)
		}
	}
	require.Equal(t, len(excluded), s.payments())
}

// Which refusals are stored is configured; that their work is dropped, and that success is kept, is not.
func TestKeep(t *testing.T) {
	t.Parallel()
	s := newService(t)
	var asked atomic.Int64
	s.cfg.Keep = func(status int) bool {
		if status < 400 {
			asked.Add(1)
		}
		return status == http.StatusInternalServerError
	}
	s.start(func(w http.ResponseWriter, r *http.Request) {
		_, err := s.insert(r.Context())
		noError(t, err)
		status, err := strconv.Atoi(r.Header.Get("X-Status"))
		noError(t, err)
		w.WriteHeader(status)
	})
	for status, replayed := range map[string]string{"200": "true", "302": "true", "422": "", "500": "true", "503": ""} {
		first, again := s.post(status, "{}", header("X-Status", status)), s.post(status, "{}", header("X-Status", status))
		require.Equal(t, first.status, again.status)
		require.Equal(t, replayed, again.header.Get("Idempotent-Replayed"), status)
	}
	require.Zero(t, asked.Load())
	require.Equal(t, 2, s.payments())
	require.Equal(t, 3, s.stored())
}

func TestRulesForKeys(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.cfg.StrictKey, s.cfg.MinKey = true, 4
	s.start(s.pay)
	for key, want := range map[string]int{
		`abcd`: 400, `"abc"`: 400, `"a\"\\"`: 400, `" "`: 400, `"abcd"`: 201, `"` + strings.Repeat("k", 255) + `"`: 201,
	} {
		got := s.post(key, "{}")
		require.Equal(t, want, got.status, key)
		if want == http.StatusBadRequest {
			kind, _ := got.problem(t)
			require.Equal(t, "idempotency-key-invalid", kind)
		}
	}
}

func TestReusedStatus(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.cfg.ReusedStatus = http.StatusBadRequest
	s.start(s.pay)
	s.post("k", "1")
	got := s.post("k", "2")
	require.Equal(t, http.StatusBadRequest, got.status)
	kind, _ := got.problem(t)
	require.Equal(t, "idempotency-key-reused", kind)
}

func TestMissingKeyIsTold(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.cfg.Required = true
	s.start(s.pay)
	require.Equal(t, `</problems/idempotency-key-missing>; rel="describedby"`, s.post("", "{}").header.Get("Link"))
	require.Empty(t, s.post("a,b", "{}").header.Get("Link"))
}

// A problem is JSON of the type that the client takes, and what a handler answers is left alone.
func TestProblemsAsPlainJSON(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
	})
	for accept, want := range map[string]string{
		"": "application/problem+json", "application/json": "application/json", "text/html, application/json;q=0.5": "application/json",
		"application/json, */*": "application/problem+json", "application/json, application/problem+json;q=0.1": "application/problem+json",
		"application/*": "application/problem+json", "application/json, */*;q=0": "application/json", "text/html": "application/problem+json",
		"application/json;q=0": "application/problem+json", "application/json, ;;": "application/json",
	} {
		got := s.post("a,b", "{}", header("Accept", accept))
		require.Equal(t, http.StatusBadRequest, got.status)
		require.Equal(t, want, got.header.Get("Content-Type"), accept)
	}
	got := s.post("k", "{}", header("Accept", "application/json"))
	require.Equal(t, "application/problem+json", got.header.Get("Content-Type"))
}

// Under a lease the key is not locked but claimed. A request that waits for it gets the answer all the same.
func TestWaitForTheAnswerUnderALease(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.cfg.Wait, s.cfg.Lease = time.Minute, &httpmw.LeaseConfig{}
	begun, finish := make(chan struct{}), make(chan struct{})
	s.start(func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-finish
		s.pay(w, r)
	})
	first := s.ask("k")
	<-begun
	second := s.ask("k")
	require.Equal(t, http.StatusUnprocessableEntity, s.post("k", "[]").status, "another request does not wait")
	require.Empty(t, second)
	close(finish)
	require.JSONEq(t, `{"id": 1}`, (<-first).body)
	got := <-second
	require.JSONEq(t, `{"id": 1}`, got.body)
	require.Equal(t, "true", got.header.Get("Idempotent-Replayed"))
	require.EqualValues(t, 1, s.runs.Load())
}

func TestOptionsAreValidated(t *testing.T) {
	for field, cfg := range map[string]httpmw.IdempotencyConfig{
		"Wait":         {Wait: -1},
		"MinKey":       {MinKey: 256},
		"ReusedStatus": {ReusedStatus: 200},
		"Methods":      {Methods: []string{"GET"}},
		"Exclude":      {Exclude: []string{""}},
	} {
		require.ErrorContains(t, cfg.Validate(), "IdempotencyConfig."+field)
	}
	for _, pointer := range []string{"", "name", "$.name", "/a~2", "/a~"} {
		require.Error(t, (&httpmw.IdempotencyConfig{Exclude: []string{pointer}}).Validate(), pointer)
	}
	for _, name := range []string{
		"date", "x-request-id", "X-RateLimit-Remaining", "RateLimit", "RateLimit-Policy", "traceparent", "Proxy-Connection", "idempotent-replayed",
		"*",
	} {
		require.ErrorContains(t, (&httpmw.IdempotencyConfig{Headers: []string{name}}).Validate(), "IdempotencyConfig.Headers", name)
	}
	require.NoError(t, (&httpmw.IdempotencyConfig{
		Wait: time.Second, MinKey: 255, ReusedStatus: 409, Methods: []string{"PUT", "DELETE"}, Exclude: []string{"/a", "/a/b", "/a~0b/0/"},
	}).Validate())
}
