package httpmwtest

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
)

func testManyClients(s *session) {
	const clients = 20
	key, before := newKey(), s.effects()
	type result struct {
		reply
		conflicts []reply
		err       error
	}
	results := make([]result, clients)
	ctx, cancel := context.WithTimeout(s.t.Context(), defaultPatience)
	defer cancel()
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			r := &results[i]
			for {
				if r.reply, r.err = s.attempt(ctx, s.target.Create, key); r.err != nil || r.status != http.StatusConflict {
					return
				}
				r.conflicts = append(r.conflicts, r.reply)
				s.pause()
			}
		})
	}
	group.Wait()
	executed := 0
	for _, r := range results {
		require.NoError(s.t, r.err, "a client was not answered")
		require.Equal(s.t, results[0].status, r.status, "the clients' answers differ: %s", r.body)
		require.Equal(s.t, results[0].body, r.body, "the clients' answers differ")
		if !r.replayed() {
			executed++
		}
		for _, c := range r.conflicts {
			s.refused(c, http.StatusConflict, "idempotency-key-in-progress", true, key)
		}
	}
	require.True(s.t, results[0].success(), "%d %s", results[0].status, results[0].body)
	require.Equal(s.t, 1, executed, "answers that are no replays")
	s.committed(1, before, "many clients with one key")
}

// flight is a request that was sent and may still be in work.
type flight struct {
	key  string
	done chan struct{}
	gone context.CancelFunc // closes the client's connection
	got  reply
	err  error
}

// fly sends the slow request, and returns once a second client has got the answer that the key is in progress.
func (s *session) fly() *flight {
	s.t.Helper()
	return s.flyWith(*s.target.Slow)
}

func (s *session) flyWith(slow Request) *flight {
	s.t.Helper()
	for range s.tries {
		ctx, cancel := context.WithTimeout(s.t.Context(), defaultPatience)
		s.t.Cleanup(cancel)
		f := &flight{key: newKey(), done: make(chan struct{}), gone: cancel}
		s.flights++
		go func() {
			defer close(f.done)
			f.got, f.err = s.attempt(ctx, slow, f.key)
		}()
		for s.landed(f) == nil {
			s.pause() // else the second client could arrive first
			got := s.send(slow, f.key)
			if got.status == http.StatusConflict {
				if s.landed(f) == nil {
					s.refused(got, http.StatusConflict, "idempotency-key-in-progress", true, f.key)
					return f
				}
				break
			}
			if got.replayed() {
				break // the slow request ended before the second client arrived
			}
			require.True(s.t, got.success(), "a key in flight: %d %s", got.status, got.body)
			<-f.done // the second client was first all the same; then the slow request must get a conflict or a replay
			require.True(s.t, f.got.status == http.StatusConflict || f.got.replayed(), "both were executed: %d %s", f.got.status, f.got.body)
		}
		<-f.done
	}
	require.FailNow(s.t, "the slow request was never met in flight: it is too quick, or one waited for the other")
	return nil
}

// landed returns the answer of the slow request, nil while it is in work.
func (s *session) landed(f *flight) *reply {
	select {
	case <-f.done:
		return &f.got
	default:
		return nil
	}
}

func testInFlight(s *session) {
	before := s.effects()
	f := s.fly()
	<-f.done
	require.NoError(s.t, f.err)
	require.True(s.t, f.got.success(), "%d %s", f.got.status, f.got.body)
	require.False(s.t, f.got.replayed(), "the first answer says that it is a replay")
	s.replays(f.got, *s.target.Slow, f.key)
	s.committed(s.flights, before, "each key once")
}

// testAnotherInFlight sends another content with a key in progress. The content of the first request is visible only inside its transaction, so every
// request has to wait for it. After COMMIT the other content is refused.
func testAnotherInFlight(s *session) {
	for range s.tries {
		f := s.fly()
		changed := *s.target.Slow
		changed.Path = withQuery(changed.Path, "another=1")
		got := s.send(changed, f.key)
		// A conflict here proves that the key was still in progress when changed was answered. f.done may close later: the client of the slow request
		// may not have its answer yet.
		inFlight := s.send(*s.target.Slow, f.key).status == http.StatusConflict
		<-f.done
		require.NoError(s.t, f.err)
		require.False(s.t, got.success() && !got.replayed(), "another content under a key in flight was executed")
		if s.target.SlowLeased {
			s.reused(got, f.key) // under a lease the claim, with its content, is committed before the work, so the other content is seen at once
		} else if inFlight {
			s.refused(got, http.StatusConflict, "idempotency-key-in-progress", true, f.key)
		}
		s.reused(s.send(changed, f.key), f.key, f.got.body)
		s.replays(f.got, *s.target.Slow, f.key)
		if inFlight {
			return
		}
	}
	require.FailNow(s.t, "the slow request was never met in flight")
}

func testClientGone(s *session) {
	before := s.effects()
	for range s.tries {
		f := s.fly()
		f.gone()
		<-f.done
		if f.err == nil {
			continue // the answer came before the client closed its connection
		}
		settled := func(r reply) bool { return r.status != http.StatusConflict }
		got := s.eventually("an answer to the retry", settled, *s.target.Slow, f.key)
		require.True(s.t, got.success(), "the work went on without its client: %d %s", got.status, got.body)
		require.True(s.t, got.replayed(), "the retry was executed: the work had ended with its client's connection")
		s.committed(s.flights, before, "each key once, and the key whose client went away")
		return
	}
	require.FailNow(s.t, "the slow request was always answered first")
}

func testWaits(s *session) {
	const clients = 4
	key, before := newKey(), s.effects()
	answers, errs := make([]reply, clients), make([]error, clients)
	ctx, cancel := context.WithTimeout(s.t.Context(), defaultPatience)
	defer cancel()
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() { answers[i], errs[i] = s.attempt(ctx, *s.target.Waits, key) })
	}
	group.Wait()
	executed := 0
	for i, got := range answers {
		require.NoError(s.t, errs[i], "a client was not answered")
		require.True(s.t, got.success(), "everybody waits for the answer: %d %s", got.status, got.body)
		require.Equal(s.t, answers[0].body, got.body, "the clients' answers differ")
		if !got.replayed() {
			executed++
		}
	}
	require.Equal(s.t, 1, executed, "answers that are no replays")
	s.committed(1, before, "clients that waited")
}

// testLeased: under a lease the claim, with its content, is committed before the work. So another content is refused while the work goes on.
func testLeased(s *session) {
	before := s.effects()
	for range s.tries {
		f := s.flyWith(*s.target.Leased)
		changed := *s.target.Leased
		changed.Path = withQuery(changed.Path, "another=1")
		got := s.send(changed, f.key)
		inFlight := s.landed(f) == nil
		s.reused(got, f.key)
		<-f.done
		require.NoError(s.t, f.err)
		s.replays(f.got, *s.target.Leased, f.key)
		s.committed(s.flights, before, "each key once")
		if inFlight {
			return
		}
	}
	require.FailNow(s.t, "the leased request was never met in flight")
}

// testImpatient: a request that waits for a key in progress gets the conflict when its wait is over, and the request in work is not disturbed.
func testImpatient(s *session) {
	before := s.effects()
	f := s.flyWith(*s.target.Impatient)
	<-f.done
	require.NoError(s.t, f.err)
	require.True(s.t, f.got.success(), "%d %s", f.got.status, f.got.body)
	s.replays(f.got, *s.target.Impatient, f.key)
	s.committed(s.flights, before, "each key once")
}

// shortLease is how long the lease of TakenOver lasts at least.
const shortLease = time.Second / 2

// testTakenOver: while the lease of the lost process lasts, no other process executes the request; afterwards one does.
func testTakenOver(s *session) {
	for range s.tries {
		key, before, began := newKey(), s.effects(), time.Now()
		s.lose(key)
		got := s.send(*s.target.TakenOver, key)
		if got.success() && time.Since(began) > shortLease {
			continue // the lease may have ended before this request came, so nothing was shown
		}
		s.refused(got, http.StatusConflict, "idempotency-key-in-progress", true, key)
		s.takesOver(key, before)
		return
	}
	require.FailNow(s.t, "the lease had always ended before anybody else came")
}

// lose sends the request during which the service loses its process.
func (s *session) lose(key string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), defaultPatience)
	defer cancel()
	if lost, err := s.attempt(ctx, *s.target.TakenOver, key); err == nil {
		require.False(s.t, lost.success(), "TakenOver says otherwise: %s", lost.body)
	}
}

func (s *session) takesOver(key string, before int) {
	s.t.Helper()
	first := s.eventually("the end of the lease", func(r reply) bool { return r.status != http.StatusConflict }, *s.target.TakenOver, key)
	require.True(s.t, first.success(), "after the end of the lease: %d %s", first.status, first.body)
	require.False(s.t, first.replayed(), "it was never executed, and is replayed")
	s.replays(first, *s.target.TakenOver, key)
	s.committed(1, before, "a request that was taken over")
}

// testRecovers: the service finds out that the step was done. It does not do the step again, and completes the request.
func testRecovers(s *session) {
	key, before := newKey(), s.effects()
	first := s.send(*s.target.Recovers, key)
	require.GreaterOrEqual(s.t, first.status, http.StatusInternalServerError, "Recovers says otherwise: %s", first.body)
	s.replays(s.executes(*s.target.Recovers, key), *s.target.Recovers, key)
	s.committed(1, before, "a step whose outcome was found out")
}

func testResolved(s *session) {
	key, before := newKey(), s.effects()
	first := s.send(*s.target.Unknown, key)
	require.GreaterOrEqual(s.t, first.status, http.StatusInternalServerError, "Unknown says otherwise: %s", first.body)
	require.NoError(s.t, s.target.Resolve(), "resolve what is unknown")
	s.replays(s.executes(*s.target.Unknown, key), *s.target.Unknown, key)
	s.committed(1, before, "a step that an operator has resolved")
}

func testUnknown(s *session) {
	key := newKey()
	first := s.send(*s.target.Unknown, key)
	require.GreaterOrEqual(s.t, first.status, http.StatusInternalServerError, "Unknown says otherwise: %s", first.body)
	before := s.effects()
	for range 2 {
		s.refused(s.send(*s.target.Unknown, key), http.StatusServiceUnavailable, "idempotency-key-unknown", false, key)
	}
	s.committed(0, before, "retries, while the outcome is unknown")
}
