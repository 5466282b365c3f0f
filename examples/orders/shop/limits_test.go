package shop

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// A database that takes no writes is out of order, and no mistake of the service: clients come again, and probes know.
func TestReadOnlyDatabase(t *testing.T) {
	t.Parallel()
	db := pgtest.OpenApart(t)
	s := openShopOn(t, db.DB, db.DSN, config.Config{})
	s.requireReady()
	id := s.place("k1")

	db.ReadOnly(t)
	for range 2 {
		r := s.post("k2", "/orders/"+id+"/items", itemBody)
		require.Equal(t, http.StatusServiceUnavailable, r.status, r.body)
		require.NotEmpty(t, r.header.Get("Retry-After"))
	}
	s.requireAnswer("/orders/"+id, http.StatusOK, "placed") // reading goes on
	s.requireAnswer("/readyz", http.StatusServiceUnavailable, "not ready")

	db.Writable(t)
	s.requireReady()
	await.True(t, func() bool { // connections that were ended are used once more
		return s.post("k2", "/orders/"+id+"/items", itemBody).status == http.StatusOK
	}, "the item")
}
