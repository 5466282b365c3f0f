package a

func (s *Store) M5() {}
