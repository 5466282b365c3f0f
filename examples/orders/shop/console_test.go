package shop

import (
	"encoding/base64"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/internal/pgtest"
)

func TestConsoleIsForThoseWhoAreNamed(t *testing.T) {
	t.Setenv(operatorsVariable, "ann:secret")
	t.Setenv(readersVariable, "bob:other, cid:third")
	s := openShop(t)
	for _, c := range []struct {
		user, says string
		status     int
	}{
		{"", "", http.StatusUnauthorized},
		{"ann:other", "", http.StatusUnauthorized},
		{"ann:secret", "may change", http.StatusOK},
		{"bob:other", "read only", http.StatusOK},
		{"cid:third", "read only", http.StatusOK},
	} {
		var header []string
		if c.user != "" {
			header = []string{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte(c.user))}
		}
		r := s.do(http.MethodGet, "/console/", "", header...)
		require.Equal(t, c.status, r.status, c.user)
		require.Contains(t, r.body, c.says, c.user)
	}
}

func TestConsoleIsNotThereUnlessSomebodyIsNamed(t *testing.T) {
	s := openShop(t)
	require.Equal(t, http.StatusNotFound, s.do(http.MethodGet, "/console/", "").status)
	t.Setenv(operatorsVariable, "ann")
	_, err := newService(t.Context(), RoleAll, nil, config.Config{DatabaseURL: pgtest.URL(t), Schema: pgtest.Open(t).Schema})
	require.ErrorContains(t, err, "CONSOLE_OPERATORS: give name:password")
}
