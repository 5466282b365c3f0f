package a

func (s *Store) M2() {}
