package delayed_test

import (
	"testing"

	"github.com/oncebox/oncebox/internal/outboxtest"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/outbox"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

type fixture struct{ *outboxtest.Fixture }

func newFixture(t *testing.T, cfg *outbox.Config) *fixture {
	t.Helper()
	return &fixture{outboxtest.New(t, cfg)}
}
