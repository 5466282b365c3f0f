package lanedb_test

import (
	"testing"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxtest"
)

func TestStatementsOfRows(t *testing.T) { outboxtest.Statements(t, lanedb.Statements(true)) }
