package nats

import (
	"testing"

	"github.com/oncebox/oncebox/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Exit(m.Run()) }
