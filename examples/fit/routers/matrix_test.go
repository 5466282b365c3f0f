package routers

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/internal/await"
)

// native is what a handler can do, in the way of its framework.
type native struct {
	ctx    context.Context
	answer func(status int) error
	stream func() error
	hijack func() error
}

// behaviour is what a handler does after it has paid.
type behaviour struct {
	name string
	do   func(s *service, n native) error
	// want are the statuses that its clients may be told: 0 for a connection that broke, 409 where that was before the handler had returned.
	want []int
}

func behaviours() []behaviour {
	created, failed := []int{http.StatusCreated}, []int{http.StatusInternalServerError}
	return []behaviour{
		{"answered", func(_ *service, n native) error { return n.answer(http.StatusCreated) }, created},
		{"answered without a body", func(_ *service, n native) error { return n.answer(http.StatusNoContent) }, []int{http.StatusNoContent}},
		{"refused", func(_ *service, n native) error { return n.answer(http.StatusConflict) }, []int{http.StatusConflict}},
		{"error returned", func(*service, native) error { return errBank }, failed},
		{"answered, then an error", func(_ *service, n native) error {
			if err := n.answer(http.StatusCreated); err != nil {
				return err
			}
			return errBank
		}, []int{http.StatusCreated, http.StatusInternalServerError}},
		{"panic", func(*service, native) error { panic(errBank) }, []int{0, http.StatusInternalServerError}},
		{"answered, then a panic", func(_ *service, n native) error { panic(n.answer(http.StatusCreated)) }, []int{0, http.StatusInternalServerError}},
		{"nothing written", func(*service, native) error { return nil }, failed},
		{"written late", func(s *service, n native) error {
			s.late.Store(new(func() { _ = n.answer(http.StatusCreated) }))
			return nil
		}, failed},
		{"streamed", func(_ *service, n native) error { return n.stream() }, []int{0, http.StatusOK, http.StatusInternalServerError}},
		{"hijacked", func(_ *service, n native) error { return n.hijack() },
			[]int{0, http.StatusInternalServerError, http.StatusConflict}},
	}
}

// No cell commits what its client is told has failed, and none tells a retry of a success that did not happen. Each framework is right, or is refused at
// the first request with an error that names the way.
func TestEachRouterIsRightOrRefused(t *testing.T) {
	s := newService(t)
	cells := 0
	for _, framework := range frameworks() {
		for _, kind := range []string{"key", "unit of work"} {
			for _, b := range behaviours() {
				cell := framework.name + "/" + kind + "/" + b.name
				cells++
				t.Run(cell, func(t *testing.T) {
					s.log.take()
					middleware, key := httpmw.UnitOfWork(s.units), ""
					if kind == "key" {
						middleware, key = s.once(), `"`+cell+`"`
					}
					url := framework.serve(t, s, middleware, func(n native) error {
						if err := s.pay(n.ctx, cell); err != nil {
							return err
						}
						return b.do(s, n)
					})
					successes := 0
					for n := range 3 {
						got := post(t, url, key)
						if got.success() {
							successes++
						}
						want := successes
						if kind == "key" {
							want = min(1, successes)
						}
						require.Equal(t, want, s.rows(t, cell), "request %d was told %d %v", n+1, got.status, got.replayed)
						require.Equal(t, kind == "key" && n > 0 && got.success(), got.replayed && got.success(), "a success is replayed")
						if len(framework.refused) == 0 {
							require.Contains(t, b.want, got.status)
						}
					}
					log := s.log.take()
					if len(framework.refused) == 0 {
						if b.name == "nothing written" {
							require.Contains(t, log, "w.WriteHeader(http.StatusNoContent)")
						}
						return
					}
					require.Zero(t, successes)
					if !strings.Contains(b.name, "panic") { // which the recoverer tells
						await.True(t, func() bool { // of a connection that broke the client hears earlier
							log += s.log.take()
							return slices.ContainsFunc(framework.refused, func(says string) bool { return strings.Contains(log, says) })
						}, "the log to name the way")
						require.Contains(t, log, "level=ERROR")
					}
				})
			}
		}
	}
	t.Logf("%d cells", cells)
}
