package a

// Store has eleven methods, one of them from Clock.
type Store struct {
	Clock
}

func (Store) M1()   {}
func (Store) M2()   {}
func (Store) M3()   {}
func (Store) M4()   {}
func (Store) M5()   {}
func (Store) M6()   {}
func (Store) M7()   {}
func (*Store) M8()  {}
func (*Store) M9()  {}
func (*Store) M10() {}

type Clock interface{ Now() int64 }

type Relay struct{ *Store }

// Alias and Wide pass nothing on.
type (
	Alias = Store
	Wide  interface{ all }
)

type all interface {
	M1()
	M2()
	M3()
	M4()
	M5()
	M6()
	M7()
	M8()
	M9()
	M10()
	M11()
}
