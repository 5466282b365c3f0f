package httpmw_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/step"
	"github.com/oncebox/oncebox/uow"
)

// bank is the other side. It notes the keys that it is sent.
type bank struct {
	url string

	mu   sync.Mutex
	keys []string
}

func newBank(t *testing.T) *bank {
	t.Helper()
	b := &bank{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.keys = append(b.keys, strings.Join(r.Header.Values("Idempotency-Key"), ", "))
	}))
	t.Cleanup(server.Close)
	b.url = server.URL
	return b
}

// took returns the keys since it was called last.
func (b *bank) took() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	keys := b.keys
	b.keys = nil
	return keys
}

// charge sends one request with the handler's context.
func (b *bank) charge(t *testing.T, ctx context.Context, client *http.Client, method, path string, changes ...change) { //nolint:revive // t first
	r, err := http.NewRequestWithContext(ctx, method, b.url+path, strings.NewReader("{}"))
	noError(t, err)
	for _, c := range changes {
		c(r)
	}
	resp, err := client.Do(r)
	noError(t, err)
	if err == nil {
		noError(t, resp.Body.Close())
	}
}

// newClient has connections of its own: nothing is left of them for other tests.
func newClient(t *testing.T, transport *httpmw.Transport) *http.Client {
	t.Helper()
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	transport.Base = base
	return &http.Client{Transport: transport}
}

// However often a request is executed, the other side is sent the same keys, and two calls are never taken for one.
func TestOutgoingKeys(t *testing.T) {
	t.Parallel()
	s, b := newService(t), newBank(t)
	client := newClient(t, &httpmw.Transport{})
	s.start(func(w http.ResponseWriter, r *http.Request) {
		b.charge(t, r.Context(), client, http.MethodPost, "/charges")
		b.charge(t, r.Context(), client, http.MethodPost, "/charges")
		b.charge(t, r.Context(), client, http.MethodPatch, "/charges")
		b.charge(t, r.Context(), client, http.MethodPost, "/charges?now=1")
		switch s.runs.Load() {
		case 1: // is run again at once
			_ = s.units.Do(r.Context(), func(context.Context, *uow.Unit) error { return uow.ErrConflict })
			http.Error(w, "conflict", http.StatusConflict)
		case 2: // is run again when the client sends it again
			w.WriteHeader(http.StatusBadGateway)
		default:
			w.WriteHeader(http.StatusOK)
		}
	})
	require.Equal(t, http.StatusBadGateway, s.post("k", "{}").status)
	require.Equal(t, http.StatusOK, s.post("k", "{}").status)
	require.EqualValues(t, 3, s.runs.Load())
	keys := b.took()
	require.Len(t, keys, 12)
	require.Equal(t, keys[:4], keys[4:8], "a re-run")
	require.Equal(t, keys[:4], keys[8:], "a retry")

	require.Equal(t, http.StatusOK, s.post("k", "{}", header("X-Principal", "u2")).status)
	keys = append(keys[:4], b.took()...)
	require.Len(t, keys, 8)
	require.NotContains(t, keys, "")
	slices.Sort(keys)
	require.Len(t, slices.Compact(keys), 8, "each call and each request has its own")
}

// A key that is free again may come with another request. The other side must not take that for the first one.
func TestOutgoingKeysOfAnotherRequestWithTheKey(t *testing.T) {
	t.Parallel()
	s, b := newService(t), newBank(t)
	client := newClient(t, &httpmw.Transport{})
	s.start(func(w http.ResponseWriter, r *http.Request) {
		b.charge(t, r.Context(), client, http.MethodPost, "/charges")
		w.WriteHeader(http.StatusBadGateway)
	})
	s.post("k", `{"amount":100}`)
	s.post("k", `{"amount":9000}`)
	keys := b.took()
	require.Len(t, keys, 2)
	require.NotEqual(t, keys[0], keys[1])
}

// Under a lease a step that is done is not run again. What is sent outside of it keeps its keys.
func TestOutgoingKeysUnderALease(t *testing.T) {
	t.Parallel()
	s, b := newService(t), newBank(t)
	s.cfg.Lease = &httpmw.LeaseConfig{}
	client := newClient(t, &httpmw.Transport{})
	s.start(func(w http.ResponseWriter, r *http.Request) {
		_, err := step.Call(r.Context(), "charge", func(ctx context.Context, _ string) (int, error) {
			b.charge(t, ctx, client, http.MethodPost, "/charges")
			return 0, nil
		})
		noError(t, err)
		b.charge(t, r.Context(), client, http.MethodPost, "/charges")
		status := http.StatusOK
		if s.runs.Load() == 1 {
			status = http.StatusBadGateway
		}
		w.WriteHeader(status)
	})
	require.Equal(t, http.StatusBadGateway, s.post("k", "{}").status)
	first := b.took()
	require.Len(t, first, 2)
	require.NotEqual(t, first[0], first[1])
	require.Equal(t, http.StatusOK, s.post("k", "{}").status)
	require.Equal(t, first[1:], b.took())
}

func TestRequestsThatKeepTheirHeaders(t *testing.T) {
	t.Parallel()
	s, b := newService(t), newBank(t)
	client := newClient(t, &httpmw.Transport{})
	s.start(func(_ http.ResponseWriter, r *http.Request) {
		b.charge(t, r.Context(), client, http.MethodGet, "/a")
		b.charge(t, r.Context(), client, http.MethodPut, "/a")
		b.charge(t, r.Context(), client, http.MethodPost, "/a", header("Idempotency-Key", "mine"))
		b.charge(t, t.Context(), client, http.MethodPost, "/a")
	})
	s.post("k", "{}")
	require.Equal(t, []string{"", "", "mine", ""}, b.took())
	s.post("", "{}")
	require.Equal(t, []string{"", "", "mine", ""}, b.took(), "a request without a key")
}

func TestTransportIsConfigured(t *testing.T) {
	b := newBank(t)
	client := newClient(t, &httpmw.Transport{Methods: []string{http.MethodPut}, Quoted: true, Key: func(context.Context) string { return "job-1" }})
	ctx := idempotency.NewContext(t.Context(), "unused")
	b.charge(t, ctx, client, http.MethodPost, "/a")
	b.charge(t, ctx, client, http.MethodPut, "/a")
	keys := b.took()
	require.Empty(t, keys[0])
	require.Regexp(t, `^"[0-9a-f]{32}"$`, keys[1])

	// Without a count, two calls would have the same key.
	body := &closeable{Reader: strings.NewReader("{}")}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, b.url, body)
	require.NoError(t, err)
	_, err = client.Transport.RoundTrip(r) //nolint:bodyclose // there is none
	require.ErrorContains(t, err, "NewContext")
	require.True(t, body.closed)
	require.Empty(t, b.took())
}

type closeable struct {
	io.Reader

	closed bool
}

func (c *closeable) Close() error {
	c.closed = true
	return nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTransportLeavesTheRequestAsItIs(t *testing.T) {
	var sent []string
	transport := &httpmw.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
		sent = append(sent, r.Header.Get("Idempotency-Key"), r.URL.String())
		return nil, io.EOF
	})}
	for _, address := range []string{"http://bank/a", "http://user:word@bank/a#part"} {
		at, err := url.Parse(address)
		require.NoError(t, err)
		r := (&http.Request{Method: http.MethodPost, URL: at}).WithContext(idempotency.NewContext(t.Context(), "base"))
		_, err = transport.RoundTrip(r) //nolint:bodyclose // there is none
		require.ErrorIs(t, err, io.EOF)
		require.Nil(t, r.Header)
	}
	require.Equal(t, sent[0], sent[2], "credentials may be others the next time")
	require.Equal(t, "http://user:word@bank/a#part", sent[3])
}

// The handler of a message sends the same keys in every try, and others in another step.
func TestOutgoingKeysOfMessages(t *testing.T) {
	t.Parallel()
	s, b := newServiceOn(t, pgtest.Migrated(t)), newBank(t)
	client := newClient(t, &httpmw.Transport{Key: inbox.Key})
	box := inbox.New(s.units, &inbox.Config{Schema: s.db.Schema})
	inUnit := box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error {
		b.charge(t, ctx, client, http.MethodPost, "/charges")
		b.charge(t, ctx, client, http.MethodPost, "/charges")
		return io.EOF
	}))
	leased := box.WrapLeased("mailing", messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error {
		b.charge(t, ctx, client, http.MethodPost, "/charges")
		for _, name := range []string{"a", "b"} {
			_, err := step.Call(ctx, name, func(ctx context.Context, _ string) (int, error) {
				b.charge(t, ctx, client, http.MethodPost, "/charges")
				return 0, io.EOF
			})
			if err == nil {
				t.Error("the step is done")
			}
		}
		return io.EOF
	}))
	m := messaging.NewMessage(event.Envelope{ID: uuid.NewString(), Type: "tick", Source: "clock", TenantID: "t1", Topic: "ticks"}, 1, nil)
	var all []string
	for _, h := range []messaging.Handler{inUnit, leased} {
		require.ErrorIs(t, h.Handle(t.Context(), m), io.EOF)
		first := b.took()
		require.ErrorIs(t, h.Handle(t.Context(), m), io.EOF)
		require.Equal(t, first, b.took())
		all = append(all, first...)
	}
	require.Len(t, all, 5)
	require.NotContains(t, all, "")
	slices.Sort(all)
	require.Len(t, slices.Compact(all), 5)
}
