ERRATA = ()
