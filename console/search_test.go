package console_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/uow"
)

// placeOf adds an event of an aggregate within a request.
func (s *shop) placeOf(aggregate, request string) {
	s.t.Helper()
	ctx := event.WithMetadata(s.t.Context(), event.Metadata{event.CorrelationID: request})
	require.NoError(s.t, s.App.UoW.Do(ctx, func(_ context.Context, u *uow.Unit) error {
		return u.Add("order", orderPlaced{aggregate}, event.WithAggregate("order", aggregate, 1))
	}))
}

// A search leads to the life of the one event that fits, or to a list.
func TestASearchLeadsToALife(t *testing.T) {
	s := newShop(t)
	s.placeOf("8eca5a5d-1", "req-81f3")
	s.placeOf("8eca5a5d-2", "req-81f3")
	s.Drain()
	s.placeOf("77", "req-9 "+hostile)
	b := s.serve(s.config())
	require.Equal(t, []string{"search"}, b.page("").links("search"), "every page leads to it")
	require.Contains(t, b.page("search").body, `size="36"`, "an id fits into the field")

	find := func(text string) answer { return b.get("search?" + url.Values{"q": {text}}.Encode()) }
	life := find("8eca5a5d-1")
	require.Contains(t, life.at, "/event?id=")
	require.Contains(t, life.text(), "order 8eca5a5d-1")
	id := life.at[strings.Index(life.at, "id=")+3:][:36]
	require.Equal(t, life.at, find(id).at, "by its id")
	require.Contains(t, find(" 77 ").at, "/event?id=")

	list := find("8eca5a5d")
	require.Contains(t, list.text(), "2 found.")
	require.Len(t, list.links("event?"), 2)
	require.Contains(t, list.text(), "SENT")
	related := b.page(life.links("search?")[0])
	require.Len(t, related.links("event?"), 2, "what one request has caused")
	require.Contains(t, related.text(), "correlation id")
	of := find("default")
	require.Len(t, of.links("dead?tenant=default"), 1)
	require.Len(t, of.links("delayed?tenant=default"), 1)

	require.Contains(t, find("nothing of the kind").text(), "Nothing was found.")
	require.Equal(t, http.StatusBadRequest, find("x").status)
	require.Equal(t, http.StatusBadRequest, find(strings.Repeat("x", 300)).status)
	require.Equal(t, http.StatusBadRequest, b.get("search?q=77&until=yesterday").status)
	for range 51 {
		s.placeOf("many", "req-51")
	}
	s.Drain()
	// The day before needs a partition: in the first 15 minutes of a day (UTC), the first span of a search covers the whole day, and nothing would
	// be left to search.
	_, err := s.DB.ExecContext(t.Context(), "SELECT outbox_make_partition((now() AT TIME ZONE 'UTC')::date - 1, '1 minute')")
	require.NoError(t, err)
	newest := find("req-51")
	require.Contains(t, newest.text(), "The newest 50 are shown")
	further := newest.links("search?q=req-51")
	require.Len(t, further, 1, "the search ended with the fiftieth, and goes on from there")
	require.Contains(t, b.page(further[0]).text(), "Nothing was found before 20", "not from today on once more")
	hostileSearch := find(hostile)
	require.NotContains(t, hostileSearch.body, "<script")
	require.Contains(t, b.get("search?q=order-7&source=partner").at, "/event?id=order-7&source=partner")
}
