package recipes_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/examples/recipes"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/oncetest"
)

// provider charges once for each key.
type provider struct {
	away, declines bool
	calls          int
	charged        map[string]bool // whether it was accepted

	mu    sync.Mutex
	asked chan string              // if set, gets the key of each call
	later map[string]chan struct{} // the answer to a key, if it is here, waits until that is closed
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.away {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	key := r.Header.Get("Idempotency-Key")
	p.mu.Lock()
	p.calls++
	if _, known := p.charged[key]; !known {
		p.charged[key] = !p.declines
	}
	accepted := p.charged[key]
	later := p.later[key]
	delete(p.later, key) // only the first call waits
	p.mu.Unlock()
	if p.asked != nil {
		p.asked <- key
	}
	if later != nil {
		<-later
	}
	if !accepted {
		w.WriteHeader(http.StatusPaymentRequired)
	}
}

type shop struct {
	*oncetest.Kit

	web      *oncetest.Web
	provider *provider
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{provider: &provider{charged: map[string]bool{}}}
	server := httptest.NewServer(s.provider)
	t.Cleanup(server.Close)
	s.Kit, s.web = oncetest.Serve(t, recipes.Tickets(recipes.Settings{
		ProviderURL: server.URL, Tenants: httpmw.BearerTokens{"token of acme": "acme", "token of globex": "globex"},
	}))
	return s
}

// of returns the header of a tenant's requests.
func of(tenant string, header ...string) []string {
	return append(header, "Authorization", "Bearer token of "+tenant)
}

func (s *shop) reserve(t *testing.T, id string) {
	t.Helper()
	require.Equal(t, http.StatusCreated, s.web.Send("POST", "/reservations/"+id, "", of("acme", "Idempotency-Key", "key")...).Code)
}

// pay returns the status, and whether the answer was stored.
func (s *shop) pay(id, key string) (status int, replayed bool) {
	answer := s.web.Send("POST", "/reservations/"+id+"/pay", "", of("acme", "Idempotency-Key", key)...)
	return answer.Code, answer.Header().Get("Idempotent-Replayed") == "true"
}

func (s *shop) cancel(id string) int {
	return s.web.Send("DELETE", "/reservations/"+id, "", of("acme")...).Code
}

func (s *shop) requireStatus(t *testing.T, id, want string) {
	t.Helper()
	var status string
	require.NoError(t, s.DB.NewRaw("SELECT status FROM reservations WHERE id = ?", id).Scan(t.Context(), &status))
	require.Equal(t, want, status)
}

// What the table of docs/calls.md says.
func TestAnswersOfAPayment(t *testing.T) {
	s := newShop(t)
	require := require.New(t)
	twice := func(id, key string, status int, stored bool) {
		t.Helper()
		for n := range 2 {
			got, replayed := s.pay(id, key)
			require.Equal(status, got)
			require.Equal(stored && n == 1, replayed)
		}
	}
	s.reserve(t, "a")
	twice("a", "key-1", http.StatusNoContent, true)
	twice("a", "key-2", http.StatusNoContent, true)
	require.Equal(1, s.provider.calls, "a paid reservation is not paid again, whatever the key")

	s.reserve(t, "b")
	s.provider.away = true
	twice("b", "key-1", http.StatusServiceUnavailable, false)
	require.Equal(http.StatusConflict, s.cancel("b"), "the provider may have been asked")
	s.provider.away, s.provider.declines = false, true
	twice("b", "key-1", http.StatusPaymentRequired, true)
	require.Equal(2, s.provider.calls)

	s.reserve(t, "c")
	require.Equal(http.StatusNoContent, s.cancel("c"))
	require.Equal(http.StatusNoContent, s.cancel("c"), "it changes nothing the second time, so it needs no key")
	twice("c", "key-1", http.StatusConflict, false)
	twice("d", "key-1", http.StatusNotFound, true)
	status, _ := s.pay("c", "")
	require.Equal(http.StatusBadRequest, status, "a step needs a key")
	oncetest.RequireNoEvent(s.Kit, func(e recipes.HoldEnded) bool { return e.ID != "b" })
}

// The process dies after the call. The client comes again, with the same key or another one, or never: then the delayed event ends the payment.
func TestPaymentAfterACrash(t *testing.T) {
	s := newShop(t)
	for id, again := range map[string]string{"same": "key-1", "another": "key-2", "never": ""} {
		s.provider.calls = 0
		s.reserve(t, id)
		s.CrashAt(oncetest.AfterCall)
		s.pay(id, "key-1") // nobody gets this answer
		s.Drain()
		s.requireStatus(t, id, "paying")
		if again != "" {
			status, _ := s.pay(id, again)
			require.Equal(t, http.StatusNoContent, status)
		} else {
			s.Advance(time.Hour)
			s.Drain()
		}
		s.requireStatus(t, id, "paid")
		require.Equal(t, 2, s.provider.calls)
		require.Contains(t, s.provider.charged, "reservation acme/"+id+"/1")
		oncetest.RequireEvents[recipes.ReservationPaid](s.Kit, 1, func(e recipes.ReservationPaid) bool { return e.ID == id })
	}
	require.Len(t, s.provider.charged, 3)
}

// Each answer to a payment has the token of the event: that of the request that has paid, its replay, and a request with another key. Two tenants have a
// reservation with the same id, and pay with the same key.
func TestClientSeesItsPayment(t *testing.T) {
	s := newShop(t)
	require := require.New(t)
	for _, tenant := range []string{"acme", "globex"} {
		post := func(path, key string) http.Header {
			answer := s.web.Send("POST", "/reservations/a"+path, "", of(tenant, "Idempotency-Key", key)...)
			require.Less(answer.Code, 300, answer.Body)
			return answer.Header()
		}
		post("", "key")
		paid := post("/pay", "key-1")
		require.Empty(paid.Get("Idempotent-Replayed"), "not the answer to the other tenant")
		token := paid.Get("X-Read-Token")
		require.NotEmpty(token)
		require.Equal(token, post("/pay", "key-1").Get("X-Read-Token"), "a replay")
		require.Equal(token, post("/pay", "key-2").Get("X-Read-Token"), "another key")
		require.Equal("1", s.web.SendAndDrain("GET", "/sales", "", of(tenant, "X-Read-Token", token)...).Body.String())
	}
	require.Len(s.provider.charged, 2)
	require.Equal(http.StatusUnauthorized, s.web.Send("GET", "/sales", "").Code)
}

// A payment that was declined may be tried again, with another key. Two requests share an attempt, and an answer that comes late changes nothing in
// the next attempt.
func TestDeclinedPaymentIsTriedAgain(t *testing.T) {
	s := newShop(t)
	require := require.New(t)
	s.provider.declines, s.provider.asked = true, make(chan string, 8)
	first, second := make(chan struct{}), make(chan struct{})
	s.provider.later = map[string]chan struct{}{"reservation acme/a/1": first, "reservation acme/a/2": second}
	closeFirst, closeSecond := sync.OnceFunc(func() { close(first) }), sync.OnceFunc(func() { close(second) })
	t.Cleanup(func() { closeFirst(); closeSecond() }) // also after a failure, else the server of the provider would not end
	s.reserve(t, "a")
	answers := map[string]chan int{}
	pay := func(key string) {
		answer := make(chan int, 1)
		answers[key] = answer
		go func() {
			status, _ := s.pay("a", key)
			answer <- status
		}()
		await.Receive(t, s.provider.asked, "the provider is asked")
	}
	answer := func(key string) int { return await.Receive(t, answers[key], "the answer") }

	pay("late") // attempt 1, whose answer is under way
	pay("quick")
	require.Equal(http.StatusPaymentRequired, answer("quick"))
	s.requireStatus(t, "a", "held")
	s.provider.declines = false
	pay("again") // attempt 2, whose answer is under way
	closeFirst()
	require.Equal(http.StatusPaymentRequired, answer("late"))
	s.requireStatus(t, "a", "paying")
	closeSecond()
	require.Equal(http.StatusNoContent, answer("again"))
	s.requireStatus(t, "a", "paid")
	require.Equal(map[string]bool{"reservation acme/a/1": false, "reservation acme/a/2": true}, s.provider.charged)
	status, replayed := s.pay("a", "quick")
	require.Equal(http.StatusPaymentRequired, status)
	require.True(replayed, "the key belongs to the first attempt")
}

// A reservation that nobody pays expires. If the provider declines an abandoned payment, the reservation expires as well: its hold has ended.
func TestReservationExpires(t *testing.T) {
	s := newShop(t)
	s.reserve(t, "a")
	s.reserve(t, "b")
	s.provider.away = true
	s.pay("b", "key-1")
	s.provider.away, s.provider.declines = false, true
	s.Advance(time.Hour)
	s.Drain()
	s.requireStatus(t, "a", "expired")
	s.requireStatus(t, "b", "expired")
	status, _ := s.pay("a", "key-1")
	require.Equal(t, http.StatusConflict, status)
}

// What docs/two-services.md says of settings.
func TestSettings(t *testing.T) {
	for _, c := range []struct{ url, timeout, says string }{
		{"", "5s", `TICKETS_PROVIDER_URL is not set, or empty: it is required`},
		{"http://provider", "5", `TICKETS_TIMEOUT is "5": give a duration`},
		{"http://provider", "5s", ""},
	} {
		t.Setenv("TICKETS_PROVIDER_URL", c.url)
		t.Setenv("TICKETS_TIMEOUT", c.timeout)
		t.Setenv("TICKETS_TENANTS", "token-1:acme")
		t.Setenv("TICKETS_TIMEOUTS", "misspelt")
		var got recipes.Settings
		err := config.Env("TICKETS_", &got)
		if c.says != "" {
			require.ErrorContains(t, err, c.says)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, recipes.Settings{ProviderURL: c.url, Timeout: 5 * time.Second, Tenants: httpmw.BearerTokens{"token-1": "acme"}}, got)
	}
	t.Setenv("TICKETS_TIMEOUT", "")
	var got recipes.Settings
	require.NoError(t, config.Env("TICKETS_", &got))
	require.Equal(t, 10*time.Second, got.Timeout, "an empty variable leaves the default")
}
